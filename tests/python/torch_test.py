"""distattn.torch on one to four ranks: torch_ranks.py says what each of them does. And under torchrun."""

import subprocess
import sys
import unittest

import forked
import torchrun

import distattn.torch  # noqa: F401: for those that are forked

LAYER = """
import sys, torch, distattn.torch
sharding = distattn.torch.Sharding(seq=8, comm=distattn.Comm.alone())
q = torch.randn(1, 8, 2, 8, requires_grad=True)
distattn.torch.attention(q, q, q, sharding=sharding, causal=True).sum().backward()
print(*(name for name in ("torch._dynamo", "sympy", "triton") if name in sys.modules))
"""


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        forked.read_compiler()

    def test_ranks(self):
        for ranks in (1, 2, 3, 4):
            with self.subTest(ranks=ranks):
                well, written = forked.run(torchrun.HERE / "torch_ranks.py", ranks)
                self.assertTrue(well, written)


class Torchrun(unittest.TestCase):
    def test_no_compiler_is_loaded(self):
        """It takes seconds and more memory than a layer's tensors, of a process that compiles nothing."""
        done = subprocess.run([sys.executable, "-B", "-c", LAYER], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, ""), done.stderr)

    def test_one_layer(self):
        done = torchrun.run(torchrun.HERE / "examples/one_layer.py", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        # torchrun's Python writes what print() is given piece by piece: lines of two ranks may be mixed.
        for rank in (0, 1):
            self.assertEqual(done.stdout.count(f"Sharding(seq=4096, layout='zigzag', rank {rank} of 2)"), 1, done.stdout)
        self.assertEqual(done.stdout.count("(1, 2048, 8, 64)"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
