"""distattn.attention and its handle against float64: types, masks, ranks, shapes, and gradients."""

import unittest

import numpy as np
import oracle

import distattn

TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3}
MASKS = {"full": {}, "causal": {"causal": True}, "window": {"causal": True, "window_size": (9, 0)},
         "two-sided": {"window_size": (5, 3)}, "documents": {"causal": True, "cu_seqlens": [0, 17, 18, 40, 61]}}
TOKENS = 61


def tensors(dtype="float32", batch=(2,), seq=TOKENS, seq_kv=TOKENS, heads=4, kv_heads=2, dim=16, value_dim=24, seed=1):
    random = np.random.default_rng(seed)
    return [random.standard_normal((*batch, *shape)).astype(dtype)
            for shape in ((seq, heads, dim), (seq_kv, kv_heads, dim), (seq_kv, kv_heads, value_dim))]


class OneCall(unittest.TestCase):
    def judge(self, q, k, v, masked=None, **options):
        masked = masked or {}
        o, lse = distattn.attention(q, k, v, return_lse=True, **masked, **options)
        expected, expected_lse = oracle.attention(q, k, v, **masked)
        self.assertIs(type(o), np.ndarray)
        self.assertEqual(o.dtype, q.dtype)
        self.assertEqual(o.shape, expected.shape)
        self.assertEqual(lse.shape, expected_lse.shape)
        self.assertLess(oracle.error(o, expected), TOLERANCE[q.dtype.name])
        self.assertLess(np.abs(lse - expected_lse).max(), 1e-5)

    def test_masks_on_any_number_of_ranks(self):
        for name, masked in MASKS.items():
            for ranks in (1, 2, 3, 4):
                with self.subTest(name, ranks=ranks):
                    self.judge(*tensors(), masked, ranks=ranks)

    def test_masks_differ(self):
        """An oracle that drops a mask would be found."""
        q, k, v = tensors()
        outputs = [oracle.attention(q, k, v, **masked)[0] for masked in MASKS.values()]
        for i, first in enumerate(outputs):
            for second in outputs[:i]:
                self.assertGreater(oracle.error(first, second), 0.01)

    def test_types(self):
        for dtype in TOLERANCE:
            for ranks in (1, 3):
                with self.subTest(dtype, ranks=ranks):
                    self.judge(*tensors(dtype), MASKS["causal"], ranks=ranks)

    def test_schedules(self):
        for schedule in ("ring", "zigzag-ring", "striped-ring", "balanced", "usp:2", "mesh:1x2x2:zigzag"):
            with self.subTest(schedule):
                self.judge(*tensors(), MASKS["causal"], ranks=4, schedule=schedule)

    def test_without_batch(self):
        for ranks in (1, 2):
            self.judge(*tensors(batch=()), MASKS["causal"], ranks=ranks)

    def test_fewer_queries_than_keys(self):
        for ranks in (1, 3):
            self.judge(*tensors(seq=7), MASKS["causal"], ranks=ranks)

    def test_strides(self):
        q, k, v = tensors()
        for ranks in (1, 2):
            self.judge(np.ascontiguousarray(q.swapaxes(1, 2)).swapaxes(1, 2), k[::-1], np.repeat(v, 2, -1)[..., ::2],
                       MASKS["causal"], ranks=ranks)

    def test_read_only_inputs_stay_as_they_are(self):
        given = tensors()
        for array in given:
            array.flags.writeable = False
        copies = [array.copy() for array in given]
        self.judge(*given, ranks=2)
        for array, copy in zip(given, copies):
            np.testing.assert_array_equal(array, copy)

    def test_scale(self):
        q, k, v = tensors()
        o = distattn.attention(q, k, v, softmax_scale=0.7)
        self.assertLess(oracle.error(o, oracle.attention(q, k, v, softmax_scale=0.7)[0]), 2e-6)
        self.assertGreater(oracle.error(o, oracle.attention(q, k, v)[0]), 0.01)

    def test_window_and_documents_as_arrays(self):
        q, k, v = tensors()
        listed = distattn.attention(q, k, v, cu_seqlens=[0, 20, 61], window_size=(4, 4))
        arrays = distattn.attention(q, k, v, cu_seqlens=np.array([0, 20, 61], np.int32), window_size=np.array([4, 4]))
        np.testing.assert_array_equal(listed, arrays)

    def test_handles_are_used_again(self):
        """More problems than are kept, in turns."""
        for seed in range(24):
            self.judge(*tensors(seq=10 + seed % 12, seq_kv=30, seed=seed), MASKS["causal"])


class OtherArrays(unittest.TestCase):
    """An array library that has DLPack alone."""

    class Array:
        released = 0

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __array_namespace__(self):
            return OtherArrays

    @staticmethod
    def from_dlpack(given):
        return OtherArrays.Array(np.from_dlpack(given))

    def test_results_are_of_the_same_library(self):
        q, k, v = tensors()
        expected = distattn.attention(q, k, v, causal=True)
        for ranks in (1, 2):
            o, lse = distattn.attention(*map(self.Array, (q, k, v)), causal=True, ranks=ranks, return_lse=True)
            self.assertIs(type(o), self.Array)
            self.assertLess(oracle.error(o.array, expected), 1e-6)
            self.assertEqual(lse.array.dtype, np.float32)

    def test_results_outlive_what_made_them(self):
        held = [distattn.attention(*map(self.Array, tensors(seed=seed))).array for seed in range(20)]
        for seed, o in enumerate(held):
            np.testing.assert_array_equal(o, distattn.attention(*tensors(seed=seed)))


class Handles(unittest.TestCase):
    def test_gradients(self):
        for name, masked in MASKS.items():
            for dtype in ("float32", "float64"):
                for ranks in (1, 3):
                    with self.subTest(name, dtype=dtype, ranks=ranks):
                        self.judge_gradients(dtype, ranks, masked)

    def judge_gradients(self, dtype, ranks, masked):
        q, k, v = tensors(dtype, value_dim=16)
        d_o = np.random.default_rng(2).standard_normal(q.shape).astype(dtype)
        found = [np.full_like(array, np.nan) for array in (q, k, v)]

        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, batch=2, dtype=dtype, comm=comm,
                                        schedule="zigzag-ring", backward=True, **masked)
            at = handle.positions
            own = [array[:, at] for array in (q, k, v)]
            o, lse = handle.forward(*own)
            for whole, part in zip(found, handle.backward(d_o[:, at], *own, o, lse)):
                whole[:, at] = part
            return handle.tokens

        self.assertEqual(sum(distattn.run_ranks(ranks, body)), TOKENS)
        for gradient, expected in zip(found, oracle.gradients(d_o, q, k, v, **masked)):
            self.assertLess(oracle.error(gradient, expected), TOLERANCE[dtype])

    def test_groups(self):
        def body(comm):
            members = [rank for rank in range(4) if rank % 2 == comm.rank % 2]
            group = comm.subgroup(members)
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, value_dim=24, batch=2, comm=group,
                                        causal=True, schedule="ring")
            q, k, v = tensors(seed=comm.rank % 2)
            expected = oracle.attention(q, k, v, causal=True)[0]
            at = handle.positions
            return oracle.error(handle.forward(q[:, at], k[:, at], v[:, at])[0], expected[:, at])

        for error in distattn.run_ranks(4, body):
            self.assertLess(error, 2e-6)

    def test_gather(self):
        def body(comm):
            return bytes(comm.all_gather(bytes([65 + comm.rank]) * comm.rank, [0, 1, 2]))

        self.assertEqual(distattn.run_ranks(3, body), [b"BCC"] * 3)


if __name__ == "__main__":
    unittest.main()
