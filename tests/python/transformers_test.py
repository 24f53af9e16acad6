"""distattn.transformers on one to four ranks: transformers_ranks.py says what each does; and the program that trains."""

import re
import unittest

import forked
import torchrun
import transformers.models.gemma2.modeling_gemma2
import transformers.models.gemma3.modeling_gemma3
import transformers.models.gpt_oss.modeling_gpt_oss
import transformers.models.llama.modeling_llama
import transformers.models.mistral.modeling_mistral
import transformers.models.qwen3.modeling_qwen3  # noqa: F401: as the others, for those that are forked

import distattn.transformers  # noqa: F401

EXAMPLE = torchrun.HERE / "examples/train.py"
TRAINING = (torchrun.HERE.parents[1] / "LICENSE", "--steps", "50", "--seq", "200", "--attention")


def losses(written):
    return [float(loss) for loss in re.findall(r"loss (\S+)", written)]


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        forked.read_compiler()

    def test_models(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                well, written = forked.run(torchrun.HERE / "transformers_ranks.py", ranks)
                self.assertTrue(well, written)

    def test_training(self):
        """On one process without us, on one with us, and on three of torchrun's."""
        _, written = forked.run(EXAMPLE, 1, *TRAINING, "sdpa")
        expected = losses(written)
        self.assertEqual(len(expected), 50, written)
        self.assertLess(expected[-1], expected[0] - 2)
        well, alone = forked.run(EXAMPLE, 1, *TRAINING, "distattn")
        self.assertTrue(well, alone)
        done = torchrun.run(EXAMPLE, 3, *TRAINING, "distattn")
        self.assertEqual(done.returncode, 0, done.stderr)
        for found in (alone, done.stdout):
            for loss, right in zip(losses(found), expected, strict=True):
                self.assertLess(abs(loss - right), 1e-4)


if __name__ == "__main__":
    unittest.main()
