"""What every rank does under torchrun: distattn.torch against PyTorch's own attention in float64."""

import functools
import os
import pickle
import sys
import unittest

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint
from torch_operator import Operator  # noqa: F401: unittest finds it here
from torch_reference import COMM, LIMITS, TOKENS, error, gathered, random, reference, sharded, tensors, visible

import distattn
import distattn.torch


class Attention(unittest.TestCase):
    def judge(self, dtype, layout="zigzag", cu_seqlens=None, sharding=None, **options):
        sharding = sharding or distattn.torch.Sharding(seq=TOKENS, comm=COMM, layout=layout, cu_seqlens=cu_seqlens)
        given = tensors(dtype)
        masked = {name: options[name] for name in ("causal", "window_size") if name in options}
        expected = reference(*given, scale=options.get("softmax_scale"), cu_seqlens=cu_seqlens, **masked)
        for name, result, right in zip(("o", "dq", "dk", "dv"), sharded(*given, sharding, **options), expected):
            self.assertEqual(result.dtype, dtype)
            self.assertLess(error(result, right), LIMITS[dtype], name)

    def test_masks(self):
        for layout in ("zigzag", "striped", "striped:7", "block"):
            self.judge(torch.float32, layout)
            self.judge(torch.float32, layout, causal=True)
            self.judge(torch.float32, layout, causal=True, window_size=(9, 0))
            self.judge(torch.float32, layout, causal=True, cu_seqlens=[0, 10, 11, 40, 61])
            self.judge(torch.float32, layout, causal=True, softmax_scale=0.3)

    def test_layouts_that_are_given(self):
        """Of any owners, and one that was made for documents; both serve other masks too."""
        segments = [{"start": start, "count": min(9, TOKENS - start), "owner": (start * 5 + 1) % COMM.size}
                    for start in range(0, TOKENS, 9)]
        layout = {"schema_version": 1, "ranks": COMM.size, "segments": segments}
        documents = [0, 10, 11, 40, 61]
        made = distattn.torch.Sharding.placed(seq=TOKENS, heads=4, kv_heads=2, head_dim=16, comm=COMM,
                                              cu_seqlens=documents)
        self.assertTrue(torch.equal(made.unshard(made.positions, 0), torch.arange(TOKENS)))
        for sharding in (distattn.torch.Sharding(seq=TOKENS, comm=COMM, layout=layout, cu_seqlens=documents), made):
            self.judge(torch.float32, cu_seqlens=documents, sharding=sharding, causal=True)
            self.judge(torch.float32, cu_seqlens=documents, sharding=sharding, causal=True, window_size=(9, 0))
            self.judge(torch.float32, cu_seqlens=[0, 30, 61], sharding=sharding.with_documents([0, 30, 61]), causal=True)

    def test_documents_of_a_call(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        given = tensors(torch.float32)
        for documents in ([0, 10, 61], [0, 30, 31, 61]):
            for cu_seqlens in (documents, torch.tensor(documents, dtype=torch.int32)):
                found = sharded(*given, sharding, causal=True, cu_seqlens=cu_seqlens)
                for result, right in zip(found, reference(*given, causal=True, cu_seqlens=documents)):
                    self.assertLess(error(result, right), 2e-6)

    def test_autocast(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, v, _ = (sharding.shard(x) for x in tensors(torch.float32))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = distattn.torch.attention(q, k, v.bfloat16(), sharding=sharding, causal=True)
        self.assertEqual(o.dtype, torch.bfloat16)
        whole = distattn.torch.attention(q, k, v, sharding=sharding, causal=True)
        self.assertLess(error(o, whole.double()), 2e-2)

    def test_types(self):
        for dtype in LIMITS:
            self.judge(dtype, causal=True)

    def test_other_schedules_of_the_layout(self):
        for schedule in ("allgather", "burst:zigzag", "mesh:1x1x%d:zigzag" % COMM.size):
            self.judge(torch.float32, causal=True, schedule=schedule)

    def test_scores(self):
        """Softcap, slopes and sinks together, each with its gradient."""
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, v, d_o = tensors(torch.float32)
        sinks, slopes = torch.tensor([0.5, -1.0, 2.0, 0.0]), [0.5, 0.25, 0.125, 0.0625]
        exact = [x.double().requires_grad_() for x in (q, k, v, sinks)]
        scores = torch.einsum("bqhd,bkhd->bhqk", exact[0], exact[1].repeat_interleave(2, 2)) / 4
        at = torch.arange(TOKENS)
        scores = 1.5 * torch.tanh(scores / 1.5) + torch.tensor(slopes)[:, None, None] * (at[None, :] - at[:, None])
        scores = scores.masked_fill(~visible(causal=True, window_size=(9, 0)), -torch.inf)
        terms = torch.cat([scores, exact[3][:, None, None].expand(2, 4, TOKENS, 1)], -1)
        expected = torch.einsum("bhqk,bkhd->bqhd", terms.softmax(-1)[..., :-1], exact[2].repeat_interleave(2, 2))
        expected.backward(d_o.double())
        own, own_sinks = [sharding.shard(x).requires_grad_() for x in (q, k, v)], sinks.clone().requires_grad_()
        o, largest = distattn.torch.attention(*own, sharding=sharding, causal=True, window_size=(9, 0), softcap=1.5,
                                              alibi_slopes=slopes, sinks=own_sinks, return_max_logit=True)
        o.backward(sharding.shard(d_o))
        self.assertLess(error(sharding.unshard(o.detach()), expected.detach()), 2e-6)
        for mine, right in zip(own, exact):
            self.assertLess(error(sharding.unshard(mine.grad), right.grad), 2e-6)
        self.assertLess(error(sum(gathered(own_sinks.grad)), exact[3].grad), 2e-6)
        torch.testing.assert_close(torch.stack(gathered(largest)).amax(0), scores.amax((-1, -2)).float())

    def test_values_in_keys(self):
        """As in MLA, also in a graph; the gradient of keys is that of the values too."""
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, _, d_o = tensors(torch.float32, kv_heads=1)
        exact = [x.double().requires_grad_() for x in (q, k)]
        scores = torch.einsum("bqhd,bkd->bhqk", exact[0], exact[1][:, :, 0]) / 4
        weights = scores.masked_fill(~visible(causal=True), -torch.inf).softmax(-1)
        expected = torch.einsum("bhqk,bkd->bqhd", weights, exact[1][:, :, 0, :8])
        expected.backward(d_o[..., :8].double())

        def attend(q, k):
            return distattn.torch.attention(q, k, None, value_dim=8, sharding=sharding, causal=True)

        for run in (attend, torch.compile(attend, fullgraph=True, backend="aot_eager")):
            own = [sharding.shard(x).requires_grad_() for x in (q, k)]
            o = run(*own)
            o.backward(sharding.shard(d_o[..., :8]))
            self.assertLess(error(sharding.unshard(o.detach()), expected.detach()), 2e-6)
            for mine, right in zip(own, exact):
                self.assertLess(error(sharding.unshard(mine.grad), right.grad), 2e-6)

    def test_dropout(self):
        """The same on any number of ranks, of rank 0's seed; a checkpoint drops what its first pass dropped."""
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        alone = distattn.torch.Sharding(seq=TOKENS, comm=distattn.Comm.alone(), layout="block")
        given = tensors(torch.float32)
        for seed in (3, 2**64 - 1):
            options = {"causal": True, "dropout_p": 0.3, "dropout_seed": seed}
            of_rank = {**options, "dropout_seed": seed - COMM.rank}
            for one, other in zip(sharded(*given, sharding, **of_rank), sharded(*given, alone, **options)):
                self.assertLess(error(one, other.double()), 2e-6)
        q, k, v = (sharding.shard(x).requires_grad_() for x in given[:3])

        def attend(x):
            return distattn.torch.attention(x, k, v, sharding=sharding, causal=True, dropout_p=0.3)

        found = []
        for run in (attend, lambda x: checkpoint(attend, x, use_reentrant=False),
                    torch.compile(attend, fullgraph=True, backend="aot_eager")):
            torch.manual_seed(COMM.rank)
            found.append(torch.autograd.grad(run(q).square().sum(), q)[0])
        torch.testing.assert_close(found[0], found[1])
        self.assertTrue(torch.isfinite(found[2]).all())
        torch.manual_seed(COMM.rank + 1 if COMM.rank else 0)
        torch.testing.assert_close(torch.autograd.grad(attend(q).square().sum(), q)[0], found[0])

    @unittest.skipUnless(COMM.size == 1, "it is of one process")
    def test_documents_matter(self):
        given = tensors(torch.float32)
        apart = reference(*given, causal=True, cu_seqlens=[0, 10, 11, 40, 61])
        together = reference(*given, causal=True)
        for one, other in zip(apart, together):
            self.assertGreater(error(one, other), 0.01)

    def test_strides(self):
        """[batch, heads, tokens, dim], transposed, is taken as it lies."""
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, v, _ = (sharding.shard(x) for x in tensors(torch.float32))
        dense = distattn.torch.attention(q, k, v, sharding=sharding, causal=True)
        strided = distattn.torch.attention(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)),
                                           sharding=sharding, causal=True)
        torch.testing.assert_close(strided, dense)

    def test_statistics(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, v, _ = tensors(torch.float32)
        _, lse = distattn.torch.attention(*(sharding.shard(x) for x in (q, k, v)), sharding=sharding, return_lse=True)
        scores = q.double().transpose(1, 2) @ k.double().repeat_interleave(2, 2).permute(0, 2, 3, 1) / 4
        torch.testing.assert_close(sharding.unshard(lse, 2), scores.logsumexp(-1).float())

    def test_another_default_device(self):
        """On which nothing lies but what the caller puts there."""
        given, documents = tensors(torch.float32), [0, 10, 11, 40, TOKENS]
        expected = reference(*given, causal=True, cu_seqlens=documents)
        with torch.device("meta"):
            sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=documents)
            for one, right in zip(sharded(*given, sharding, causal=True), expected):
                self.assertLess(error(one, right), 2e-6)
            listed = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
            for one, right in zip(sharded(*given, listed, causal=True, cu_seqlens=documents), expected):
                self.assertLess(error(one, right), 2e-6)
            self.assertEqual(sharding.document_positions.device.type, "cpu")

    def test_errors(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        q, k, v, _ = (sharding.shard(x) for x in tensors(torch.float32))
        for call, text in (
            (lambda: distattn.torch.attention(q[:, :3], k, v, sharding=sharding), "this rank owns"),
            (lambda: distattn.torch.attention(q, k.double(), v, sharding=sharding), "one attention has one of each"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, causal="no"), "neither True nor False"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, schedule="spiral"), "not known"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, softcap=-30.0), "softcap is -30"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, sinks=torch.ones(3)), "sink_logits is"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, dropout_p=1.5), "dropout is 1.5"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, dropout_p=0.1, dropout_seed=-1),
             "dropout_seed is -1"),
            (lambda: distattn.torch.attention(q, k, v, sharding=None), "sharding is a NoneType"),
            (lambda: distattn.torch.attention(q, k, None, sharding=sharding), "v is None"),
            (lambda: distattn.torch.attention(q, k, v, value_dim=8, sharding=sharding), "v and value_dim are given"),
            (lambda: distattn.torch.attention(q, k, None, value_dim=17, sharding=sharding), "value-dim"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, cu_seqlens=[0, 5]), "cu_seqlens is"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, cu_seqlens=torch.tensor(TOKENS)), "a list of"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, cu_seqlens=torch.tensor([0.0, 61.0])),
             "no integer"),
            (lambda: distattn.torch.attention(torch.nested.nested_tensor([q[0], q[1]]), k, v, sharding=sharding),
             "q is a nested tensor"),
            (lambda: distattn.attention(torch.nested.nested_tensor([q[0], q[1]]), k, v), "q is a nested tensor"),
            (lambda: pickle.dumps(COMM), "cannot be pickled"),
            (lambda: distattn.torch.attention(q.int(), k.int(), v.int(), sharding=sharding), "not supported"),
            (lambda: distattn.torch.Sharding(seq=TOKENS, comm=COMM, layout="spiral"), "layout is 'spiral'"),
            (lambda: distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=[0, 5]), "cu_seqlens is"),
            (lambda: distattn.torch.attention(q.numpy(), k, v, sharding=sharding), "q is a ndarray"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, sinks=[0.0] * 4), "sinks is a list"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, positions=[0]), "positions is a list"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, window_size=128), "window_size is 128"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, window_size=(1, 2, 3)), "it has two sides"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, dropout_p=0.5, dropout_seed=torch.ones(2)),
             "dropout_seed has 2 numbers"),
            *((functools.partial(distattn.torch.attention, q, k, v, sharding=sharding, dropout_p=0.5,
                                 dropout_seed=torch.ones(1).to(kind)), f"dropout_seed is a {kind}")
              for kind in (torch.float32, torch.bool, torch.complex64)),
            *((functools.partial(distattn.torch.attention, q, k, v, sharding=sharding, dropout_p=0.5,
                                 **{name: torch.ones(1, dtype=torch.int64, device="meta")}), f"{name} has no values")
              for name in ("dropout_seed", "cu_seqlens", "positions", "sinks")),
            (lambda: distattn.torch.attention(q, k.to("meta"), v, sharding=sharding), "k has no values"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, positions=torch.tensor(3)),
             "positions are not those"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding,
                                              positions=(sharding.positions + 1).to(torch.uint64)),
             "positions are not those"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding, cu_seqlens=[]), "cu_seqlens is"),
            (lambda: distattn.torch.attention(q, k, v, sharding=sharding,
                                              cu_seqlens=torch.tensor([[0, 9, TOKENS], [0, 8, TOKENS]])),
             "rows of cu_seqlens differ"),
            (lambda: distattn.torch.Sharding(seq=TOKENS, comm=3), "comm is a int"),
            (lambda: sharding.shard(q[:, :2]), "pass the whole one"),
            (lambda: sharding.shard([0] * TOKENS), "a list is given"),
            (lambda: sharding.shard(torch.ones(TOKENS), 1), "has no dimension 1"),
            (lambda: sharding.unshard(q, 4), "has no dimension 4"),
            (lambda: sharding.labels(torch.arange(TOKENS)), "has no dimension 1"),
        ):
            with self.assertRaisesRegex(distattn.UsageError, text):
                call()
        with self.assertRaisesRegex(TypeError, "spiral"):
            distattn.torch.attention(q, k, v, sharding=sharding, spiral=30.0)
        if COMM.size > 1:
            with self.assertRaisesRegex(distattn.UsageError, "does not keep tokens in layout zigzag"):
                distattn.torch.attention(q, k, v, sharding=sharding, schedule="ring")

    @unittest.skipUnless(COMM.size == 1, "finite differences are of one rank")
    def test_gradcheck(self):
        sharding = distattn.torch.Sharding(seq=7, comm=COMM, cu_seqlens=[0, 3, 7])
        given = [random(1, 7, heads, 8, dtype=torch.float64, seed=heads).requires_grad_() for heads in (2, 1, 1)]
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, k, v: distattn.torch.attention(q, k, v, sharding=sharding, causal=True), given))
        scores = {"softcap": 2.0, "alibi_slopes": [0.3, 0.1], "dropout_p": 0.2, "dropout_seed": 5}
        given.append(random(2, dtype=torch.float64, seed=9).requires_grad_())
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, k, v, sinks: distattn.torch.attention(q, k, v, sharding=sharding, causal=True, sinks=sinks,
                                                            **scores), given))


class Shards(unittest.TestCase):
    def test_there_and_back(self):
        for layout in ("zigzag", "striped", "striped:7", "block"):
            for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
                sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM, layout=layout)
                whole = random(3, TOKENS, 2).mul(3).to(dtype)
                self.assertTrue(torch.equal(sharding.unshard(sharding.shard(whole, 1), 1), whole))
                self.assertEqual(sharding.unshard(sharding.shard(whole[:0])).shape, whole[:0].shape)
                self.assertTrue(torch.equal(sharding.unshard(sharding.positions, 0), torch.arange(TOKENS)))
                self.assertEqual(sharding.tokens, len(sharding.positions))

    def test_fewer_tokens_than_ranks(self):
        sharding = distattn.torch.Sharding(seq=2, comm=COMM, layout="striped")
        self.assertTrue(torch.equal(sharding.unshard(sharding.shard(torch.arange(2), 0), 0), torch.arange(2)))

    def test_gradients(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        own = sharding.shard(random(1, TOKENS, 2)).requires_grad_()
        weights = random(1, TOKENS, 2, seed=5)
        (sharding.unshard(own) * weights).sum().backward()
        torch.testing.assert_close(own.grad, sharding.shard(weights))

    def test_labels(self):
        tokens = torch.arange(100, 100 + TOKENS)[None]
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=[0, 10, 11, TOKENS])
        expected = tokens + 1
        expected[0, [9, 10, TOKENS - 1]] = -100
        self.assertTrue(torch.equal(sharding.unshard(sharding.labels(tokens)), expected))
        plain = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        self.assertEqual((plain.unshard(plain.labels(tokens)) == -100).sum(), 1)

    def test_positions_in_documents(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=[0, 10, 10, TOKENS])
        expected = torch.cat([torch.arange(10), torch.arange(TOKENS - 10)])
        self.assertTrue(torch.equal(sharding.unshard(sharding.document_positions, 0), expected))
        for kind in (torch.int32, torch.uint64, torch.float32):
            sharding.check_positions(sharding.document_positions.to(kind))


class Groups(unittest.TestCase):
    def test_process_groups(self):
        self.assertEqual((COMM.rank, COMM.size), (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
        dist.init_process_group("gloo")
        for members in ([rank for rank in range(COMM.size) if rank % 2 == parity] for parity in (0, 1)):
            group = dist.new_group(members) if members else None
            if COMM.rank not in members:
                continue
            comm = distattn.torch.from_process_group(group)
            self.assertEqual((comm.rank, comm.size), (members.index(COMM.rank), len(members)))
            sharding = distattn.torch.Sharding(seq=TOKENS, comm=comm)
            given = tensors(torch.float32)
            for result, right in zip(sharded(*given, sharding, causal=True), reference(*given, causal=True)):
                self.assertLess(error(result, right), 2e-6)
            comm.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    done = unittest.main(exit=False, verbosity=0, argv=[sys.argv[0], *sys.argv[1:]])
    sys.exit(0 if done.result.wasSuccessful() else 1)
