"""distattn.transformers under torchrun: transformers_ranks.py says what each rank does; and the program that trains."""

import re
import unittest

import torchrun

EXAMPLE = torchrun.HERE / "examples/train.py"
TEXT = torchrun.HERE.parents[1] / "LICENSE"


def losses(ranks, attention):
    done = torchrun.run(EXAMPLE, ranks, TEXT, "--steps", "50", "--seq", "200", "--attention", attention)
    return done, [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]


class Torchrun(unittest.TestCase):
    def test_models(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                done = torchrun.run(torchrun.HERE / "transformers_ranks.py", ranks)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_training(self):
        _, expected = losses(1, "sdpa")
        self.assertEqual(len(expected), 50)
        self.assertLess(expected[-1], expected[0] - 2)
        for ranks in (1, 3):
            done, found = losses(ranks, "distattn")
            self.assertEqual(done.returncode, 0, done.stderr)
            for loss, right in zip(found, expected, strict=True):
                self.assertLess(abs(loss - right), 1e-4)


if __name__ == "__main__":
    unittest.main()
