"""One rank of one system: context_parallel.py starts it, sends a word for each run, and reads a line of JSON for each.

    context_parallel_rank.py SYSTEM CASE FILE    (the case as JSON; the file has the exact results of a head group)
"""

import functools
import itertools
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F


class Case:
    """What is computed: causal attention of one sequence, batch 1, float32."""

    def __init__(self, given):
        self.tokens, self.heads, self.kv_heads, self.dim = (given[name] for name in
                                                            ("tokens", "heads", "kv_heads", "dim"))
        self.ends = given["ends"]  # of documents

    def documents(self, begin, end):
        """(first of its keys, first query, past the last query) of the documents among these tokens."""
        for first, last in itertools.pairwise([0, *self.ends]):
            if max(first, begin) < min(last, end):
                yield first, max(first, begin), min(last, end)

    def inputs(self):
        """q, k, v and the output's gradient of the whole sequence, [1, tokens, heads, dim]."""
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(1, self.tokens, heads, self.dim, generator=generator)
                for heads in (self.heads, self.kv_heads, self.kv_heads, self.heads)]


class Counted:
    """Bytes that this rank sends over torch.distributed."""

    sent = 0

    @staticmethod
    def size(tensor):
        return tensor.numel() * tensor.element_size()

    @classmethod
    def all_gather(cls, whole, own):
        cls.sent += cls.size(own) * (dist.get_world_size() - 1)
        dist.all_gather_into_tensor(whole.flatten(0, 1), own)

    @classmethod
    def reduce_scatter(cls, own, whole):
        cls.sent += cls.size(own) * (dist.get_world_size() - 1)
        dist.reduce_scatter_tensor(own, whole.flatten(0, 1))

    @classmethod
    def all_to_all(cls, x):
        """[ranks, ...]: part r of the input goes to rank r, part r of the result is from it."""
        cls.sent += cls.size(x) // dist.get_world_size() * (dist.get_world_size() - 1)
        result = torch.empty_like(x)
        dist.all_to_all_single(result, x)
        return result

    @classmethod
    def wrap_point_to_point(cls):
        """Counts what others send by dist.batch_isend_irecv."""
        exchange = dist.batch_isend_irecv

        def counted(operations):
            cls.sent += sum(cls.size(each.tensor) for each in operations if each.op is dist.isend)
            return exchange(operations)

        dist.batch_isend_irecv = counted


def sdpa(q, k, v, **mask):
    """PyTorch's attention of [1, tokens, heads, dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **mask).transpose(1, 2)


class Ours:
    def __init__(self, case):
        import distattn.torch

        self.case = case
        documents = [0, *case.ends] if len(case.ends) > 1 else None
        self.sharding = distattn.torch.Sharding(seq=case.tokens, comm=distattn.torch.init(), cu_seqlens=documents)
        self.positions = self.sharding.positions
        self.attend = functools.partial(distattn.torch.attention, sharding=self.sharding, causal=True)
        rows = distattn.plan(seq=case.tokens, heads=case.heads, kv_heads=case.kv_heads, head_dim=case.dim,
                             ranks=dist.get_world_size(), schedule=self.sharding.schedule, cu_seqlens=documents,
                             backward=True)
        self.planned = sum(row["bytes_sent_max"] for row in rows)

    def sent(self):
        return self.planned


class Placed(Ours):
    """In a layout that is made for the documents."""

    def __init__(self, case):
        import distattn.torch

        if len(case.ends) == 1:
            raise NotImplementedError("its layout is zigzag's if there is one document")
        self.case, documents = case, [0, *case.ends]
        sizes = {"seq": case.tokens, "heads": case.heads, "kv_heads": case.kv_heads, "head_dim": case.dim}
        self.sharding = distattn.torch.Sharding.placed(**sizes, comm=distattn.torch.init(), cu_seqlens=documents)
        self.positions = self.sharding.positions
        self.attend = functools.partial(distattn.torch.attention, sharding=self.sharding, causal=True)
        rows = distattn.plan(**sizes, ranks=dist.get_world_size(), schedule="placed", cu_seqlens=documents,
                             backward=True)
        self.planned = sum(row["bytes_sent_max"] for row in rows)


class Theirs:
    def sent(self):
        sent, Counted.sent = Counted.sent, 0
        return sent


class Gathered(torch.autograd.Function):
    """The parts of all ranks, and back: each rank's sum of their gradients."""

    @staticmethod
    def forward(_, own):
        whole = own.new_empty((dist.get_world_size(), *own.shape))
        Counted.all_gather(whole, own.contiguous())
        return whole

    @staticmethod
    def backward(_, gradient):
        own = torch.empty_like(gradient[0])
        Counted.reduce_scatter(own, gradient.contiguous())
        return own


class AllGather(Theirs):
    """Keys of all ranks are gathered before PyTorch's attention: two chunks a rank, as in Llama 3's training."""

    def __init__(self, case):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        self.case, self.size = case, case.tokens // (2 * ranks)
        self.chunks = [(rank, 2 * ranks - 1 - rank) for rank in range(ranks)]
        self.begins = [chunk * self.size for chunk in self.chunks[rank]]
        self.positions = torch.cat([torch.arange(begin, begin + self.size) for begin in self.begins])
        order = torch.tensor([chunk for pair in self.chunks for chunk in pair])
        self.place = torch.argsort(order)  # of each chunk, among those that were gathered

    def attend(self, q, k, v):
        gathered = Gathered.apply(torch.stack((k[0], v[0])).unflatten(1, (2, self.size)))
        keys, values = gathered.transpose(1, 2).flatten(0, 1)[self.place].transpose(0, 1).flatten(1, 2)
        return torch.cat([self.piece(q[:, at - begin + i * self.size:end - begin + i * self.size], keys[None, first:end],
                                     values[None, first:end], at - first)
                          for i, begin in enumerate(self.begins)
                          for first, at, end in self.case.documents(begin, begin + self.size)], 1)

    @staticmethod
    def piece(q, k, v, before):
        """Queries that stand behind `before` keys."""
        if before == 0:
            return sdpa(q, k, v, is_causal=True)
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril_(before)
        return sdpa(q, k, v, attn_mask=seen)


class Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return Counted.all_to_all(x.contiguous())

    @staticmethod
    def backward(_, gradient):
        return Counted.all_to_all(gradient.contiguous())


def block_of(case):
    size = case.tokens // dist.get_world_size()
    return torch.arange(size) + dist.get_rank() * size


class Ulysses(Theirs):
    """DeepSpeed-Ulysses: tokens are exchanged for heads, and back. Too few key heads are repeated."""

    def __init__(self, case):
        self.case, self.ranks, self.positions = case, dist.get_world_size(), block_of(case)

    def by_heads(self, x):
        if x.shape[2] < self.ranks:
            x = x.repeat_interleave(self.ranks // x.shape[2], 2)
        return Exchanged.apply(x.unflatten(2, (self.ranks, -1)).permute(2, 0, 1, 3, 4)).transpose(0, 1).flatten(1, 2)

    def attend(self, q, k, v):
        q, k, v = (self.by_heads(x) for x in (q, k, v))
        o = torch.cat([sdpa(q[:, at:end], k[:, at:end], v[:, at:end], is_causal=True)
                       for _, at, end in self.case.documents(0, self.case.tokens)], 1)
        return Exchanged.apply(o.unflatten(1, (self.ranks, -1)).transpose(0, 1)).permute(1, 2, 0, 3, 4).flatten(2, 3)


class RingAttentionPytorch(Theirs):
    """lucidrains' ring of blocks. Its query heads stand by their place in a group, ours by groups."""

    def __init__(self, case):
        import ring_attention_pytorch

        if len(case.ends) > 1:
            raise NotImplementedError("it has no packed documents")
        Counted.wrap_point_to_point()
        self.positions, self.groups = block_of(case), case.kv_heads
        self.ring = functools.partial(ring_attention_pytorch.ring_flash_attn, causal=True, ring_reduce_col=True)

    def attend(self, q, k, v):
        o = self.ring(q.unflatten(2, (self.groups, -1)).transpose(2, 3).flatten(2, 3), k, v)
        return o.unflatten(2, (-1, self.groups)).transpose(2, 3).flatten(2, 3)


SYSTEMS = {"distattn": Ours, "distattn, placed": Placed, "all-gather + SDPA": AllGather, "Ulysses + SDPA": Ulysses,
           "ring-attention-pytorch": RingAttentionPytorch}


def status_bytes(name):
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


class Rank:
    def __init__(self, system, case, exact):
        self.case, self.system, self.exact = case, SYSTEMS[system](case), exact
        own = [x[:, self.system.positions] for x in case.inputs()]
        self.q, self.k, self.v = (x.requires_grad_() for x in own[:3])
        self.d_o = own[3]
        del own
        with open("/proc/self/clear_refs", "w", encoding="ascii") as references:
            references.write("5")  # the peak counts from here
        self.memory = status_bytes("VmRSS")

    def run(self):
        dist.barrier()
        begin = time.perf_counter()
        self.o = self.system.attend(self.q, self.k, self.v)
        middle = time.perf_counter()
        self.gradients = torch.autograd.grad(self.o, (self.q, self.k, self.v), self.d_o)
        dist.barrier()  # the slowest rank's time is everyone's
        return {"forward": middle - begin, "seconds": time.perf_counter() - begin, "sent": self.system.sent()}

    def errors(self):
        """Squares of what is off and of what is right, of o, dq, dk and dv of the first key head's group."""
        peak = status_bytes("VmHWM") - self.memory
        exact, group = np.load(self.exact), self.case.heads // self.case.kv_heads
        squares = []
        for name, x in zip(("o", "dq", "dk", "dv"), (self.o.detach(), *self.gradients)):
            right = torch.from_numpy(exact[name])[self.system.positions]
            found = x[0, :, :group if name in ("o", "dq") else 1].double()
            squares.append([(found - right).square().sum().item(), right.square().sum().item()])
        return {"squares": squares, "peak": peak}


def main():
    system, given, exact = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(os.environ["RANK"]) % len(os.sched_getaffinity(0))]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        rank = Rank(system, Case(json.loads(given)), exact)
        print(json.dumps({"ready": True}), file=answers, flush=True)
    except (ImportError, NotImplementedError) as error:
        print(json.dumps({"skipped": str(error)}), file=answers, flush=True)
        return
    for line in sys.stdin:
        print(json.dumps(getattr(rank, line.strip())()), file=answers, flush=True)


main()
