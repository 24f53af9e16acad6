"""Bad input is one exception of one line; forks, exits, interruptions and failed ranks end as they should."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import unittest

import numpy as np

import distattn

Q = np.ones((8, 2, 8), np.float32)


def attend(q=Q, k=Q, v=Q, **options):
    return distattn.attention(q, k, v, **options)


def handle(**options):
    return distattn.Attention(**{"seq": 8, "heads": 2, "head_dim": 8, **options})


REFUSED = {
    "a type": (lambda: attend(Q.astype(int)), "q has dtype int64"),
    "another byte order": (lambda: attend(Q.astype(">f4")), "q has dtype >f4"),
    "two types": (lambda: attend(k=Q.astype("float64")), "k is float64, not float32"),
    "dimensions": (lambda: attend(Q[0]), "q has 2 dimensions"),
    "no array": (lambda: attend([1.0]), "q is a list"),
    "heads": (lambda: attend(np.ones((8, 3, 8), np.float32)), "3 heads on 2 kv-heads"),
    "keys of another dimension": (lambda: attend(k=np.ones((8, 2, 16), np.float32)), "k is 1x8x2x16"),
    "fewer values than keys": (lambda: attend(v=Q[:4]), "v is 4x2x8 and k 8x2x8"),
    "fewer values than keys on ranks": (lambda: attend(v=Q[:4], ranks=2), "v is 4x2x8 and k 8x2x8"),
    "more values than keys on ranks": (lambda: attend(k=Q[:4], ranks=2), "v is 8x2x8 and k 4x2x8"),
    "keys of more sequences": (lambda: attend(q=Q[None], k=np.stack([Q, Q]), v=np.stack([Q, Q]), ranks=2),
                               "k is 2x8x2x8 and q 1x8x2x8"),
    "a head dimension": (lambda: attend(*[Q[..., :7]] * 3), "head-dim is 7"),
    "no tokens": (lambda: attend(Q[:0]), "seq is 0"),
    "odd strides": (lambda: attend(np.lib.stride_tricks.as_strided(Q, Q.shape, (66, 32, 4))), "strides of (66, 32, 4)"),
    **{f"elements off their boundaries, {ranks} ranks": (
        lambda ranks=ranks: attend(np.zeros(Q.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(Q.shape), ranks=ranks),
        "q begins between two boundaries of its float32 elements") for ranks in (1, 2)},
    "no bands": (lambda: handle(bands=[]), "bands has no entry"),
    "a schedule": (lambda: attend(schedule="spiral"), "schedule spiral is not known"),
    "a schedule that is no text": (lambda: attend(schedule=3), "schedule is 3"),
    "no schedule": (lambda: attend(schedule=None), "schedule is None"),
    "no schedule to plan": (lambda: distattn.plan(seq=8, heads=1, head_dim=8, ranks=2, schedule=None), "schedule is None"),
    "a schedule on ranks": (lambda: attend(ranks=2, schedule="spiral"), "schedule spiral is not known"),
    "no ranks": (lambda: attend(ranks=0), "0 ranks"),
    "more ranks than 32 bits hold": (lambda: attend(ranks=2**40), "more than the library counts"),
    "a window of more than 64 bits": (lambda: attend(window_size=(2**70, 0)), "more than 64 bits hold"),
    "a list of threads": (lambda: attend(threads=[2]), "threads is [2]"),
    "a list of schedules": (lambda: attend(schedule=["ring"]), "schedule is ['ring']"),
    "a schedule with an end in it": (lambda: attend(schedule="ring\0s"), "no text"),
    "an array that says causal": (lambda: attend(causal=np.ones(2)), "neither True nor False"),
    "a masked array": (lambda: attend(np.ma.array(Q)), "q is a masked array"),
    "whether to return lse": (lambda: attend(return_lse="x"), "return_lse is 'x'"),
    "a machine that is no text": (lambda: distattn.plan(seq=8, heads=1, head_dim=8, ranks=2, machine=3), "machine is 3"),
    "half a rank": (lambda: attend(ranks=1.5), "ranks is 1.5"),
    "a backend": (lambda: attend(backend="abacus"), "abacus"),
    "a window": (lambda: attend(window_size=(1,)), "it has two sides"),
    "a negative window": (lambda: attend(window_size=(-2, 0)), "window -2,0"),
    "documents": (lambda: attend(cu_seqlens=[0, 4]), "cu-seqlens ends at 4"),
    "no documents": (lambda: attend(cu_seqlens=[]), "cu_seqlens has no entry"),
    "documents that are no list": (lambda: attend(cu_seqlens=8), "cu_seqlens is 8"),
    "causal": (lambda: attend(causal="yes"), "causal is 'yes'"),
    "causal as a number, after a call that is right": (lambda: (attend(causal=True), attend(causal=1.0)), "causal is 1.0"),
    "softcap": (lambda: attend(softcap=-30.0), "softcap is -30"),
    "softcap that is no number": (lambda: attend(softcap="30"), "softcap is '30'"),
    "slopes": (lambda: attend(alibi_slopes=np.ones(3)), "slopes"),
    "slopes of each sequence": (lambda: attend(alibi_slopes=np.ones((2, 2))), "a number for each query head"),
    "no slopes": (lambda: attend(alibi_slopes=[]), "a number for each query head"),
    "dropout": (lambda: attend(dropout_p=1.0), "dropout is 1"),
    "a seed": (lambda: attend(dropout_p=0.1, dropout_seed=-1), "dropout_seed is -1"),
    "sinks": (lambda: attend(sinks=np.ones(3, np.float32)), "sink_logits is 1x1x3x1"),
    "sinks that are no array": (lambda: attend(sinks=[1.0, 2.0]), "sinks is a list"),
    "sinks twice": (lambda: attend(sinks=Q[0, :, 0], s_aux=Q[0, :, 0]), "sinks and s_aux are given"),
    "sinks that are no numbers": (lambda: attend(sinks=np.full(2, np.nan, np.float32)), "a logit is a finite number"),
    "sinks of a handle": (lambda: handle().forward(Q, Q, Q, Q[0, :, 0]), "a handle without sink_logits"),
    "no sinks": (lambda: handle(sink_logits=True).forward(Q, Q, Q), "no sinks are given"),
    "no values": (lambda: attend(v=None), "v is None"),
    "values twice": (lambda: attend(value_dim=4), "v and value_dim are given"),
    "more values than keys": (lambda: attend(v=None, value_dim=16), "value-dim"),
    "values in keys that are half a number": (lambda: attend(v=None, value_dim=2.5), "value_dim is 2.5"),
    "values of a handle": (lambda: handle(shared_kv=True).forward(Q, Q, Q), "a handle with shared_kv"),
    "no values of a handle": (lambda: handle().forward(Q, Q, None), "a handle without shared_kv"),
    "whether values lie in keys": (lambda: handle(shared_kv="k"), "shared_kv is 'k'"),
    "a type to send": (lambda: handle(wire="int8"), "wire is int8"),
    "a mode": (lambda: handle(mode="fast"), "mode is 'fast'"),
    "a node of ranks": (lambda: handle(node_size=-1), "-1"),
    "a node of a tree": (lambda: distattn.tree_mask([(1,)]), "two numbers"),
    "a node before its parent": (lambda: distattn.tree_mask([(1, 0)]), "parent"),
    "a pass": (lambda: handle().programs("both"), "which is 'both'"),
    "programs of a pass that is not prepared": (lambda: handle().programs("backward"), "backward pass"),
    "what is not computed": (lambda: attend(qv=Q), "qv is given"),
    "a layout": (lambda: handle(layout=3), "layout is a int"),
    "a layout that balanced has not": (lambda: handle(schedule="balanced", layout="striped:3"), "layout striped:3"),
    "blocks of no token": (lambda: handle(schedule="ring", layout="striped:0"), "write striped:64"),
    "a layout of another schedule": (lambda: handle(schedule="ring", layout="{}"), "layout"),
    "a scale": (lambda: attend(softmax_scale=0), "softmax_scale is 0"),
    "a machine": (lambda: distattn.plan(seq=8, heads=1, head_dim=8, ranks=2, machine="abacus"), "no machine 'abacus'"),
    "too many heads": (lambda: handle(heads=2**40), "more than the library counts"),
    "a backward pass": (lambda: handle().backward(Q, Q, Q, Q, Q, np.ones((2, 8), np.float32)), "no backward pass"),
    "no bands": (lambda: handle(bands=5), "bands is 5"),
    "no nodes": (lambda: distattn.tree_mask(None), "nodes is None"),
    "a balance": (lambda: distattn.plan(seq=8, heads=1, head_dim=8, ranks=2, balance_tokens="x"), "balance_tokens is 'x'"),
    "a scale of two parts": (lambda: attend(softmax_scale=np.complex64(1)), "softmax_scale is"),
    "a scale that no float holds": (lambda: attend(softmax_scale=10**400), "more than a float holds"),
    "values of less than no number": (lambda: attend(v=None, value_dim=-8), "value_dim is -8"),
    "ranks that are none": (lambda: handle(comm="x"), "comm is a str"),
    "a band": (lambda: handle(bands=[(0, 1)]), "six numbers"),
    "sizes to gather": (lambda: distattn.Comm.alone().all_gather(b"ab", [3]), "gives 2 bytes"),
    "a group": (lambda: distattn.Comm.alone().subgroup([1]), "group of ranks"),
}


class Refusals(unittest.TestCase):
    def test_each_is_one_line(self):
        for name, (call, text) in REFUSED.items():
            with self.subTest(name):
                with self.assertRaises(distattn.UsageError) as caught:
                    call()
                self.assertIn(text, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))
                self.assertIsInstance(caught.exception, distattn.Error)

    def test_unknown_keywords(self):
        for call in (attend, handle):
            with self.assertRaisesRegex(TypeError, "spiral"):
                call(spiral=30.0)
        self.assertEqual(attend(softcap=0.0, dropout_p=0, alibi_slopes=None).shape, Q.shape)

    def test_copies(self):
        whole = handle()
        self.assertIs(copy.deepcopy(whole), whole)
        with self.assertRaisesRegex(distattn.UsageError, "cannot be pickled"):
            pickle.dumps(whole)

    def test_a_closed_handle(self):
        closed = handle()
        closed.close()
        closed.close()
        with self.assertRaisesRegex(distattn.UsageError, "was closed"):
            closed.forward(Q, Q, Q)

    def test_a_refusal_leaves_the_handle_whole(self):
        whole = handle()
        with self.assertRaises(distattn.UsageError):
            whole.forward(Q[:4], Q, Q)
        np.testing.assert_allclose(whole.forward(Q, Q, Q)[0], Q, rtol=1e-6)


class Ranks(unittest.TestCase):
    def test_a_rank_that_raises_ends_the_others(self):
        def body(comm):
            if comm.rank == 1:
                raise KeyError("out of tensors")
            own = handle(comm=comm, schedule="ring")
            own.forward(Q[:4], Q[:4], Q[:4])

        with self.assertRaisesRegex(KeyError, "out of tensors"):
            distattn.run_ranks(2, body)

    def test_a_communicator_that_was_ended(self):
        def body(comm):
            comm.abort("enough")
            with self.assertRaisesRegex(distattn.EndedError, "enough"):
                handle(comm=comm)

        distattn.run_ranks(1, body)

    def test_different_plans(self):
        def body(comm):
            handle(comm=comm, schedule="ring" if comm.rank == 0 else "zigzag-ring")

        with self.assertRaisesRegex(distattn.PeerError, "differs"):
            distattn.run_ranks(2, body)

    def test_a_communicator_after_its_run(self):
        kept = []
        distattn.run_ranks(1, kept.append)
        with self.assertRaisesRegex(distattn.UsageError, "ended with its call"):
            handle(comm=kept[0])


def run(code, **options):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
                          check=False, **options)


PREPARED = """
    import os, sys, numpy as np, distattn
    q = np.random.default_rng(1).random((64, 2, 8), np.float32)
    handle = distattn.Attention(seq=64, heads=2, head_dim=8)
    o, _ = handle.forward(q, q, q)
"""


class Processes(unittest.TestCase):
    def test_a_fork(self):
        done = run(PREPARED + """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's own from 3.12 on: threads are running
    if os.fork() == 0:
        try:
            handle.forward(q, q, q)
        except distattn.UsageError as error:
            assert "forked" in str(error)
            assert np.abs(distattn.attention(q, q, q, ranks=2) - o).max() < 1e-5
            print("child", flush=True)
        sys.exit(0)
    status = os.wait()[1]
    print("parent", status, np.abs(handle.forward(q, q, q)[0] - o).max())
    """)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "child\nparent 0 0.0\n", ""))

    def test_an_exit_with_live_handles(self):
        done = run(PREPARED + """
    comm = distattn.Comm.from_environment()
    group = comm.subgroup([0])
    sys.kept = [handle, distattn.Attention(seq=64, heads=2, head_dim=8, comm=group), group, comm]
    """, env={name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_an_end_while_threads_compute(self):
        """Of the interpreter, or of a handle: it waits for the pass under way, which is then the last one."""
        begin = PREPARED + """
    import threading
    began, q = threading.Event(), np.random.default_rng(1).random((4096, 8, 64), np.float32)
    handle = distattn.Attention(seq=4096, heads=8, head_dim=64)
    def compute():
        began.set()
        while True:
            try:
                handle.forward(q, q, q)
            except distattn.UsageError as error:
                return print(error, flush=True)
    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    began.wait()
    """
        closed = run(begin + """
    handle.close()
    thread.join()
    """)
        self.assertEqual((closed.returncode, closed.stderr), (0, ""))
        self.assertIn("the Attention was closed", closed.stdout)
        ended = run(begin)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_an_interruption(self):
        code = PREPARED + """
    print("ready", flush=True)
    while True:
        handle.forward(q, q, q)
    """
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as child:
            self.assertEqual(child.stdout.readline(), "ready\n")
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=60)
        self.assertEqual(errors.splitlines()[-1], "KeyboardInterrupt")

    def test_a_library_that_is_not_there(self):
        done = run("import distattn", env={**os.environ, "DISTATTN_LIBRARY": "nowhere/libdistattn.so"})
        self.assertIn("nowhere/libdistattn.so cannot be loaded", done.stderr)
        self.assertIn("UnavailableError", done.stderr)


if __name__ == "__main__":
    unittest.main()
