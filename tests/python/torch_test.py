"""distattn.torch under torchrun, on one to four ranks: torch_ranks.py says what each of them does."""

import unittest

import torchrun


class Torchrun(unittest.TestCase):
    def test_ranks(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                done = torchrun.run(torchrun.HERE / "torch_ranks.py", ranks)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_layer(self):
        done = torchrun.run(torchrun.HERE / "examples/one_layer.py", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()),
                         [f"Sharding(seq=4096, layout='zigzag', rank {rank} of 2) (1, 2048, 8, 64)" for rank in (0, 1)])


if __name__ == "__main__":
    unittest.main()
