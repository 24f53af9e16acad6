"""distattn.torch on one to four ranks: torch_ranks.py says what each of them does. And under torchrun."""

import os
import subprocess
import sys
import unittest
from unittest import mock

import forked
import torchrun

import distattn.torch
import distattn.torch._comm

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


class Groups(unittest.TestCase):
    LAUNCHED = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1", "RANK": "2", "WORLD_SIZE": "4", "DISTATTN_ADDRESS": "10.0.0.1",
                "TORCHELASTIC_RUN_ID": "7"}

    def variables_of(self, rank_of_all):
        """Those by which a group of two machines meets, whose first rank has that number among all."""
        def gather(everyone, own, group):
            everyone[:] = [own, {**own, "host": "another"}]

        module = distattn.torch._comm
        with mock.patch.multiple(module.dist, get_rank=lambda group=None: rank_of_all if group is None else 0,
                                 get_world_size=lambda group: 2, all_gather_object=gather), \
             mock.patch.object(module, "_own_address", lambda: "10.0.0.2"), \
             mock.patch.dict(os.environ, self.LAUNCHED), \
             mock.patch.object(module.Comm, "from_environment", lambda **_: dict(os.environ)):
            found = distattn.torch.from_process_group("a group")
            self.assertEqual({name: os.environ[name] for name in self.LAUNCHED}, self.LAUNCHED)
        return found

    def test_where_a_group_meets(self):
        """On the machine of its first rank, which need not be that of the first of all."""
        whole, part = self.variables_of(0), self.variables_of(2)
        for found, addresses in ((whole, ("10.0.0.1", "10.0.0.1")), (part, ("10.0.0.2", None))):
            self.assertEqual((found["MASTER_ADDR"], found.get("DISTATTN_ADDRESS")), addresses)
            self.assertEqual((found["RANK"], found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]), ("0", "2", "1"))
            self.assertNotEqual(found["MASTER_PORT"], "1")
            self.assertNotIn("TORCHELASTIC_RUN_ID", found)

    def test_an_address_of_this_machine(self):
        with mock.patch.dict(os.environ, {"MASTER_ADDR": "localhost"}):
            self.assertEqual(distattn.torch._comm._own_address(), "localhost")


class Torchrun(unittest.TestCase):
    def test_no_compiler_is_loaded(self):
        """It takes seconds and more memory than a layer's tensors, of a process that compiles nothing."""
        done = subprocess.run([sys.executable, "-B", "-c", LAYER], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, ""), done.stderr)

    def test_after_what_the_system_has_was_looked_at(self):
        """Whose NCCL may be too old for PyTorch."""
        done = subprocess.run([sys.executable, "-B", "-c", "import distattn; distattn.info(); import torch"],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_layer(self):
        done = torchrun.run(torchrun.HERE / "examples/one_layer.py", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        # torchrun's Python writes what print() is given piece by piece: lines of two ranks may be mixed.
        for rank in (0, 1):
            self.assertEqual(done.stdout.count(f"Sharding(seq=4096, layout='zigzag', rank {rank} of 2)"), 1, done.stdout)
        self.assertEqual(done.stdout.count("(1, 2048, 8, 64)"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
