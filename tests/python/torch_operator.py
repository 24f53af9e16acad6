"""The operator of distattn.torch in graphs and checkpoints, on every rank: a part of torch_ranks.py."""

import copy
import gc
import unittest
import weakref
from unittest import mock

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch_reference import COMM, TOKENS, random, tensors

import distattn
import distattn.torch


class Block(nn.Module):
    def __init__(self, sharding, width=32, heads=4):
        super().__init__()
        self.sharding, self.heads = sharding, heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(x).chunk(3, -1))
        return x + self.out(distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True).flatten(2))


def forwards(sharding):
    return sum(handle.calls["forward"] for handle in sharding._handles.values())


class Operator(unittest.TestCase):
    def setUp(self):
        self.sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        torch.manual_seed(0)
        self.model = nn.Sequential(Block(self.sharding), Block(self.sharding))
        self.x = self.sharding.shard(random(2, TOKENS, 32))
        self.expected, count = self.gradients(self.model)
        self.assertEqual(count, 2)

    def gradients(self, run):
        """Of all parameters, and how many attentions were computed forward."""
        before = forwards(self.sharding)
        self.model.zero_grad()
        run(self.x).square().sum().backward()
        return [parameter.grad.clone() for parameter in self.model.parameters()], forwards(self.sharding) - before

    def checkpointed(self, x, **options):
        for block in self.model:
            x = checkpoint(block, x, use_reentrant=False, **options)
        return x

    def judge(self, run, count):
        gradients, counted = self.gradients(run)
        self.assertEqual(counted, count)
        torch.testing.assert_close(gradients, self.expected, rtol=1e-4, atol=1e-4)

    def test_checkpoints(self):
        self.judge(self.checkpointed, 4)
        self.judge(lambda x: self.checkpointed(x, context_fn=distattn.torch.keep_attention), 2)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_a_graph_without_a_break(self):
        self.judge(torch.compile(self.model, fullgraph=True, backend="aot_eager"), 2)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_where_a_graph_is_broken(self):
        """The kernel itself is met by whatever traces what is left."""
        def run(x):
            for block in self.model:
                x = block(x)
                torch._dynamo.graph_break()
            return x

        self.judge(torch.compile(run, backend="aot_eager"), 2)
        skipped = torch._dynamo.disable(self.model, recursive=False)
        self.judge(torch.compile(lambda x: skipped(x) * 1, backend="aot_eager"), 2)

    def test_derivatives_that_are_not_computed(self):
        q, k, v = (self.sharding.shard(x).requires_grad_() for x in tensors(torch.float32)[:3])
        o = distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True)
        gradient, = torch.autograd.grad(o.square().sum(), q, create_graph=True)
        with self.assertRaisesRegex(distattn.UsageError, "a gradient of a gradient"):
            (o.sum() + gradient.sum()).backward()
        with forward_ad.dual_level(), self.assertRaisesRegex(distattn.UsageError, "has a tangent"):
            distattn.torch.attention(q, forward_ad.make_dual(k, k), v, sharding=self.sharding)
        with self.assertRaisesRegex(distattn.UsageError, "torch.func differentiates"):
            torch.func.grad(lambda k: distattn.torch.attention(q, k, v, sharding=self.sharding).sum())(k)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_vectorized_calls(self):
        given = [torch.stack([self.sharding.shard(x), self.sharding.shard(x) * 2]) for x in tensors(torch.float32)[:3]]

        def attend(q, k, v):
            return distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True)

        for one, *each in zip(torch.vmap(attend)(*given), *given):
            self.assertTrue(torch.equal(one, attend(*each)))

    def test_tensors_without_memory(self):
        q, k, v = (self.sharding.shard(x).to("meta") for x in tensors(torch.float32)[:3])
        self.assertEqual(distattn.torch.attention(q, k, v, sharding=self.sharding).shape, q.shape)
        distattn.torch.attention(q.requires_grad_(), k, v, sharding=self.sharding).sum().backward()
        self.assertEqual(q.grad.shape, q.shape)

    def test_autocast_leaves_float64(self):
        q, k, v = (self.sharding.shard(x) for x in tensors(torch.float64)[:3])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            o = distattn.torch.attention(q, k, v, sharding=self.sharding)
        self.assertEqual(o.dtype, torch.float64)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_new_documents_are_not_a_new_graph(self):
        graphs = []

        def backend(graph, _):
            graphs.append(graph)
            return graph

        def attend(q, k, v, cu_seqlens):
            return distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True, cu_seqlens=cu_seqlens)

        own = [self.sharding.shard(x) for x in tensors(torch.float32)[:3]]
        run = torch.compile(attend, fullgraph=True, backend=backend)
        for documents in ([0, 10, TOKENS], [0, 20, TOKENS], [0, 33, TOKENS]):
            cu_seqlens = torch.tensor(documents)
            self.assertTrue(torch.equal(run(*own, cu_seqlens), attend(*own, cu_seqlens)))
        self.assertEqual(len(graphs), 1)

    def test_a_new_sharding_is_not_a_new_graph(self):
        """Also one that a module holds, whose numbers would be part of its graph."""
        graphs = []

        def backend(graph, _):
            graphs.append(graph)
            return graph

        block = Block(self.sharding)
        run = torch.compile(block, fullgraph=True, backend=backend)
        for end in range(1, 11):  # more than a function is traced again for
            block.sharding = self.sharding.with_documents([0, end, TOKENS])
            self.assertTrue(torch.equal(run(self.x), block(self.x)))
        self.assertEqual(len(graphs), 1)

    def test_a_graph_with_all_scores(self):
        own, sinks = [self.sharding.shard(x) for x in tensors(torch.float32)[:3]], torch.zeros(4, requires_grad=True)

        def attend(q, k, v, sinks, seed):
            return distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True, softcap=2.0, sinks=sinks,
                                            alibi_slopes=[0.5, 0.25, 0.125, 0.0625], dropout_p=0.1, dropout_seed=seed)

        graphs = []

        def backend(graph, _):
            graphs.append(graph)
            return graph

        run = torch.compile(attend, fullgraph=True, backend=backend)
        for seed in (torch.tensor([1]), torch.tensor([2])):
            one, other = run(*own, sinks, seed), attend(*own, sinks, seed)
            self.assertTrue(torch.equal(one, other))
            torch.testing.assert_close(torch.autograd.grad(one.sum(), sinks), torch.autograd.grad(other.sum(), sinks))
        self.assertEqual(len(graphs), 1)

    def test_copies_of_a_model_share_its_sharding(self):
        copied = copy.deepcopy(self.model)
        self.assertIs(copied[0].sharding, self.sharding)
        self.assertTrue(torch.equal(copied(self.x), self.model(self.x)))

    def test_a_backward_pass_after_other_documents(self):
        q, k, v = (self.sharding.shard(x).requires_grad_() for x in tensors(torch.float32)[:3])
        passes = [distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True, cu_seqlens=[0, end, TOKENS])
                  for end in range(1, 12)]  # more than handles are kept
        packed = distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=[0, 1, TOKENS])
        expected, = torch.autograd.grad(distattn.torch.attention(q, k, v, sharding=packed, causal=True).square().sum(), q)
        torch.testing.assert_close(torch.autograd.grad(passes[0].square().sum(), q)[0], expected)

    def test_handles_go_with_their_sharding(self):
        """At once, not when Python looks for cycles: they are large."""
        q, k, v = (self.sharding.shard(x).requires_grad_() for x in tensors(torch.float32)[:3])
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        o = distattn.torch.attention(q, k, v, sharding=sharding, causal=True, cu_seqlens=[0, 20, TOKENS])
        o = distattn.torch.attention(q, o[:, :, :2], v, sharding=sharding.with_documents([0, 20, TOKENS]), causal=True)
        other = sharding.with_documents([0, 20, TOKENS])
        self.assertIs(other.with_documents([0, 20, TOKENS]), other)
        self.assertIs(other.with_documents([0, 9, TOKENS]), sharding.with_documents([0, 9, TOKENS]))
        handles = [weakref.ref(handle) for handle in sharding._handles.values()]
        gc.disable()
        try:
            o.sum().backward()
            del o, sharding
            self.assertIs(other.with_documents([0, 20, TOKENS]), other)
            del other
            self.assertEqual([handle() for handle in handles], [None])
        finally:
            gc.enable()

    def test_large_handles_of_other_documents_are_not_kept(self):
        q, k, v = (self.sharding.shard(x).requires_grad_() for x in tensors(torch.float32)[:3])

        def attend(*documents):
            return distattn.torch.attention(q, k, v, sharding=self.sharding, causal=True, cu_seqlens=documents)

        def kept():
            return {problem.mask.cu_seqlens for problem, _ in self.sharding._handles}

        attend(0, 20, TOKENS)
        self.assertEqual(kept(), {(), (0, 20, TOKENS)})
        with mock.patch.object(distattn.torch.Sharding, "MOST_BYTES", 0):
            o = attend(0, 30, TOKENS)
            self.assertEqual(kept(), {(0, 30, TOKENS)})
            attend(0, 40, TOKENS)
            gradient, = torch.autograd.grad(o.square().sum(), q)  # its handle is made again
            self.assertEqual(kept(), {(0, 30, TOKENS)})
        torch.testing.assert_close(gradient, torch.autograd.grad(attend(0, 30, TOKENS).square().sum(), q)[0])

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_a_graph_with_checkpoints(self):
        run = torch.compile(lambda x: self.checkpointed(x, context_fn=distattn.torch.keep_attention), fullgraph=True,
                            backend="aot_eager")
        self.judge(run, 2)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_what_pytorch_asks_of_operators(self):
        q, k, v, _ = (self.sharding.shard(x).requires_grad_() for x in tensors(torch.float32))
        torch.library.opcheck(torch.ops.distattn.forward.default,
                              (q, k, v, None, None, None, None, self.sharding.numbered, True, -1, -1, 0, [0.0, 0.0, 0.0],
                               "", 0, False, True))
        sinks = torch.zeros(4, requires_grad=True)
        torch.library.opcheck(torch.ops.distattn.forward.default,
                              (q, k, v, sinks, torch.tensor([3]), None, None, self.sharding.numbered, True, 9, -1, 0,
                               [0.0, 2.0, 0.1], "", 0, True, True))
        torch.library.opcheck(torch.ops.distattn.forward.default,
                              (q, k, None, None, None, None, None, self.sharding.numbered, True, -1, -1, 0,
                               [0.0, 0.0, 0.0], "", 8, False, True))
