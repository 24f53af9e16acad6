"""Ranks that are processes: results, and what the others say when one of them ends."""

import unittest

import launched

import distattn

BEGIN = """
    import os, signal, sys, numpy as np, distattn
    comm = distattn.Comm.from_environment(timeout_s=30)
    random = np.random.default_rng(1)
    q, k, v, d_o = (random.standard_normal((61, 4, 16), np.float32) for _ in range(4))
    handle = distattn.Attention(seq=61, heads=4, head_dim=16, comm=comm, causal=True, schedule="zigzag-ring",
                                backward=True)
    own = [x[handle.positions] for x in (q, k, v)]
    o, lse = handle.forward(*own)
"""


def has_ucx():
    return any(row["name"] == "ucx" and row["usable"] for row in distattn.info()["transports"])


@unittest.skipUnless(has_ucx(), "no transport between processes is usable")
class Processes(unittest.TestCase):
    def test_results(self):
        done = launched.run(BEGIN + """
    whole = distattn.attention(q, k, v, causal=True)
    assert np.abs(o - whole[handle.positions]).max() < 1e-5
    assert comm.all_gather(bytes([65 + comm.rank]), [1] * comm.size) == b"ABC"
    print(comm)
    comm.close()
    """, 3)
        self.assertEqual([each[:2] for each in done], [(0, f"Comm(rank={rank}, size=3)\n") for rank in range(3)], done)

    def test_exit_with_live_handles(self):
        for status, output, errors in launched.run(BEGIN, 2):
            self.assertEqual((status, output, errors), (0, "", ""))

    def test_exit_with_several_communicators(self):
        """Ranks give them back in one order: they wait for each other."""
        done = launched.run("""
    import distattn
    kept = [distattn.Comm.from_environment(timeout_s=30) for _ in range(6)]
    groups = [comm.subgroup([1, 0]) for comm in kept]
    """, 2)
        self.assertEqual(done, [(0, "", "")] * 2)

    def test_a_killed_rank(self):
        done = launched.run(BEGIN + """
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        handle.backward(d_o[handle.positions], *own, o, lse)
    except distattn.Error as error:
        print(type(error).__name__, error)
        try:
            handle.forward(*own)
        except distattn.Error as again:
            print("again", type(again).__name__)
    """, 3)
        for rank in (0, 2):
            status, output, errors = done[rank]
            self.assertEqual((status, errors), (0, ""), done)
            self.assertRegex(output, r"^(PeerError|RankTimeoutError) .*rank 1.*\nagain \w+Error\n$")

    def test_a_rank_that_raises(self):
        done = launched.run(BEGIN + """
    if comm.rank == 1:
        raise ValueError("no more text")
    handle.backward(d_o[handle.positions], *own, o, lse)
    """, 2)
        self.assertIn("ValueError: no more text", done[1][2])
        self.assertEqual(done[0][0], 1)
        self.assertRegex(done[0][2].splitlines()[-1], r"^distattn\._errors\.\w+Error: .*rank 1")

    def test_ranks_in_different_passes(self):
        done = launched.run(BEGIN + """
    try:
        if comm.rank == 1:
            handle.forward(*own)
        else:
            handle.backward(d_o[handle.positions], *own, o, lse)
        print("got numbers")
    except distattn.PeerError as error:
        print(error)
    """, 2)
        for status, output, errors in done:
            self.assertEqual((status, errors), (0, ""), done)
            self.assertRegex(output, r"^.*in a (forward|backward) pass what that rank expects .*different calls.*\n$")

    def test_a_rank_that_exits(self):
        done = launched.run(BEGIN + """
    if comm.rank == 1:
        sys.exit(7)
    try:
        handle.backward(d_o[handle.positions], *own, o, lse)
    except distattn.PeerError as error:
        print(error)
    """, 3)
        self.assertEqual(done[1], (7, "", ""), done)
        for rank in (0, 2):
            status, output, errors = done[rank]
            self.assertEqual((status, errors), (0, ""), done)
            self.assertRegex(output, r"^.*rank 1 has ended its part of the run .*\n$")

    def test_plans_that_differ(self):
        done = launched.run(BEGIN + """
    try:
        other = distattn.Attention(seq=61, heads=4, head_dim=16, comm=comm, causal=comm.rank == 0,
                                   schedule="zigzag-ring")
        other.forward(*own)
    except distattn.PeerError as error:
        print(error)
    """, 2)
        for status, output, errors in done:
            self.assertEqual((status, errors), (0, ""), done)
            self.assertRegex(output, "rank 1.* differs from rank 0")


if __name__ == "__main__":
    unittest.main()
