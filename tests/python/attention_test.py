"""distattn.attention and its handle against float64: types, masks, ranks, shapes, and gradients."""

import unittest

import numpy as np
import oracle

import distattn

TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3}
MASKS = {"full": {}, "causal": {"causal": True}, "window": {"causal": True, "window_size": (9, 0)},
         "two-sided": {"window_size": (5, 3)}, "documents": {"causal": True, "cu_seqlens": [0, 17, 18, 40, 61]}}
TOKENS = 61
SINKS = np.array([0.5, -1.0, 2.0, 0.0])
SCORES = {"softcap": {"softcap": 1.5}, "sinks": {"sinks": SINKS.astype("float32")},
          "slopes": {"alibi_slopes": [0.5, 0.25, 0.125, 0.0625]}}
SCORES["all"] = {name: value for scores in SCORES.values() for name, value in scores.items()}


def tensors(dtype="float32", batch=(2,), seq=TOKENS, seq_kv=TOKENS, heads=4, kv_heads=2, dim=16, value_dim=24, seed=1):
    random = np.random.default_rng(seed)
    return [random.standard_normal((*batch, *shape)).astype(dtype)
            for shape in ((seq, heads, dim), (seq_kv, kv_heads, dim), (seq_kv, kv_heads, value_dim))]


class OneCall(unittest.TestCase):
    def judge(self, q, k, v, masked=None, **options):
        masked = masked or {}
        o, lse = distattn.attention(q, k, v, return_lse=True, **masked, **options)
        expected, expected_lse, _ = oracle.attention(q, k, v, **masked)
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
        for schedule in ("ring", "zigzag-ring", "striped-ring", "balanced", "usp:2", "mesh:1x2x2:zigzag",
                         "mesh:1x1x4:striped:5"):
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

    def test_scores(self):
        for name, scores in SCORES.items():
            for ranks in (1, 3):
                with self.subTest(name, ranks=ranks):
                    self.judge(*tensors(), MASKS["window"] | scores, ranks=ranks)
            self.assertGreater(oracle.error(oracle.attention(*tensors(), **scores)[0], oracle.attention(*tensors())[0]),
                               0.01)
        self.judge(*tensors("float64"), MASKS["documents"] | SCORES["all"] | {"sinks": SINKS}, ranks=2)

    def test_names_of_sinks(self):
        named = [distattn.attention(*tensors(), **{name: SCORES["sinks"]["sinks"]})
                 for name in ("sinks", "s_aux", "learnable_sink")]
        np.testing.assert_array_equal(named[0], named[1])
        np.testing.assert_array_equal(named[0], named[2])

    def test_largest_scores(self):
        q, k, v = tensors()
        for ranks in (1, 3):
            for scores in ({}, SCORES["all"]):
                _, largest = distattn.attention(q, k, v, causal=True, ranks=ranks, return_max_logit=True, **scores)
                np.testing.assert_allclose(largest, oracle.attention(q, k, v, causal=True, **scores)[2], rtol=1e-5)

    def test_dropout(self):
        """Weights are dropped or divided by what is kept, alike on any number of ranks; a seed says which."""
        q, k, _ = tensors()
        values = np.broadcast_to(np.eye(TOKENS, 64, dtype=np.float32)[:, None], (2, TOKENS, 2, 64))
        whole = distattn.attention(q, k, values, causal=True)
        dropped = [distattn.attention(q, k, values, causal=True, dropout_p=0.25, dropout_seed=seed, ranks=ranks)
                   for seed, ranks in ((7, 1), (7, 3), (2**64 - 1, 1))]
        np.testing.assert_allclose(dropped[0], dropped[1], rtol=1e-5, atol=1e-7)
        self.assertGreater(oracle.error(dropped[0], dropped[2]), 0.1)
        kept, seen = dropped[0] != 0, whole != 0
        np.testing.assert_allclose(dropped[0][kept], whole[kept] / 0.75, rtol=1e-5)
        self.assertLess(abs(kept.sum() / seen.sum() - 0.75), 0.02)

    def test_values_in_keys(self):
        """As in MLA: one key head, whose first numbers are its values."""
        q, k, _ = tensors(kv_heads=1)
        for ranks in (1, 3):
            o = distattn.attention(q, k, None, value_dim=8, causal=True, ranks=ranks)
            self.assertLess(oracle.error(o, oracle.attention(q, k, k[..., :8], causal=True)[0]), 2e-6)

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

    @unittest.skipIf(np.lib.NumpyVersion(np.__version__) < "2.1.0", "this NumPy cannot say that an array is read-only")
    def test_read_only_inputs(self):
        """Which DLPack's older version cannot pass on."""
        given = tensors()
        for array in given:
            array.flags.writeable = False
        np.testing.assert_array_equal(distattn.attention(*map(self.Array, given)).array, distattn.attention(*given))

    def test_a_library_of_the_older_version(self):
        class Older(self.Array):
            def __dlpack__(self):
                return self.array.__dlpack__()

        np.testing.assert_array_equal(distattn.attention(*map(Older, tensors())).array, distattn.attention(*tensors()))

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

    def test_gradients_of_scores(self):
        for name, scores in SCORES.items():
            for ranks in (1, 3):
                with self.subTest(name, ranks=ranks):
                    self.judge_gradients("float32", ranks, {**MASKS["window"], **scores})

    def judge_gradients(self, dtype, ranks, masked):
        q, k, v = tensors(dtype, value_dim=16)
        d_o = np.random.default_rng(2).standard_normal(q.shape).astype(dtype)
        found = [np.full_like(array, np.nan) for array in (q, k, v)]
        sinks, of_sinks = masked.get("sinks"), []
        planned = {name: value for name, value in masked.items() if name != "sinks"}

        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, batch=2, dtype=dtype, comm=comm,
                                        schedule="zigzag-ring", backward=True, sink_logits=sinks is not None,
                                        **planned)
            at = handle.positions
            own = [array[:, at] for array in (q, k, v)]
            o, lse = handle.forward(*own, sinks)
            *parts, = handle.backward(d_o[:, at], *own, o, lse, sinks)
            for whole, part in zip(found, parts):
                whole[:, at] = part
            of_sinks.extend(parts[3:])
            return handle.tokens

        self.assertEqual(sum(distattn.run_ranks(ranks, body)), TOKENS)
        found += [sum(of_sinks)] if of_sinks else []
        for gradient, expected in zip(found, oracle.gradients(d_o, q, k, v, **masked), strict=True):
            self.assertLess(oracle.error(gradient, expected), TOLERANCE[dtype])

    def test_blocks_that_are_dealt_out(self):
        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, head_dim=16, comm=comm, schedule="burst", layout="striped:5")
            return [int(position) for position in handle.positions]

        self.assertEqual(distattn.run_ranks(3, body),
                         [[at for at in range(TOKENS) if at // 5 % 3 == rank] for rank in range(3)])

    def test_gradients_of_values_in_keys(self):
        q, k, _ = tensors(kv_heads=1)
        d_o = np.random.default_rng(2).standard_normal((*q.shape[:-1], 8)).astype("float32")
        found = [np.full_like(array, np.nan) for array in (q, k)]

        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=1, head_dim=16, value_dim=8, shared_kv=True,
                                        batch=2, comm=comm, causal=True, backward=True, schedule="zigzag-ring")
            at = handle.positions
            o, lse = handle.forward(q[:, at], k[:, at], None)
            dq, dk, dv = handle.backward(d_o[:, at], q[:, at], k[:, at], None, o, lse)
            found[0][:, at], found[1][:, at] = dq, dk
            return dv

        self.assertEqual(distattn.run_ranks(2, body), [None, None])
        dq, dk, dv = oracle.gradients(d_o, q, k, k[..., :8], causal=True)
        dk[..., :8] += dv
        for gradient, expected in zip(found, (dq, dk)):
            self.assertLess(oracle.error(gradient, expected), 2e-6)

    def test_trees(self):
        """Each path of a tree attends as a sequence of its own would."""
        bands, positions = distattn.tree_mask([(20, -1), (11, 0), (30, 0)])
        np.testing.assert_array_equal(positions, [*range(31), *range(20, 50)])
        q, k, v = tensors()
        found = np.full((*q.shape[:-1], v.shape[-1]), np.nan, np.float32)

        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, value_dim=24, batch=2, comm=comm,
                                        bands=bands, schedule="zigzag-ring", mode="serial")
            at = handle.positions
            found[:, at] = handle.forward(q[:, at], k[:, at], v[:, at])[0]

        distattn.run_ranks(2, body)
        for path in ([*range(31)], [*range(20), *range(31, TOKENS)]):
            expected = oracle.attention(q[:, path], k[:, path], v[:, path], causal=True)[0]
            self.assertLess(oracle.error(found[:, path], expected), 2e-6)

    def test_what_is_sent_in_16_bits(self):
        """The program says so, and results are as exact as that."""
        q, k, v = tensors(value_dim=16)

        def body(comm):
            handle = distattn.Attention(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, batch=2, comm=comm, causal=True,
                                        schedule="burst", wire="bfloat16")
            at = handle.positions
            o = handle.forward(q[:, at], k[:, at], v[:, at])[0]
            return handle.programs()["outline"], oracle.error(o, oracle.attention(q, k, v, causal=True)[0][:, at])

        outlines, errors = zip(*distattn.run_ranks(4, body))
        for outline in outlines:
            self.assertEqual((outline["name"], outline["pass"]), ("burst", "forward"))
            self.assertEqual(outline["sharding"]["problem"]["wire"], "bf16")
        self.assertTrue(1e-5 < max(errors) < 1e-2, errors)

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
