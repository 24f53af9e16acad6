"""One other system, which serves a mix: serving.py starts it, sends a word for each run, and reads a line of JSON for each.

    serving_system.py SYSTEM MIX    (the mix as JSON)
"""

import itertools
import json
import math
import os
import sys
import time

import numpy as np


class Mix:
    """Requests, the last of whose keys are those of their queries: bits of bf16, [tokens, heads, dim]."""

    def __init__(self, given):
        self.requests = [tuple(request) for request in given["requests"]]
        self.page, self.heads, self.kv_heads, self.dim = (given[name] for name in ("page", "heads", "kv_heads", "dim"))
        self.group = self.heads // self.kv_heads
        self.alike = len(set(self.requests)) == 1
        random = np.random.default_rng(1)
        self.q, self.k, self.v = [], [], []
        for keys, queries in self.requests:
            self.q.append(bits(random, (queries, self.heads, self.dim)))
            self.k.append(bits(random, (keys, self.kv_heads, self.dim)))
            self.v.append(bits(random, (keys, self.kv_heads, self.dim)))

    def error(self, o):
        """Of the first request's first key head, o [queries, group, dim], relative to float64."""
        q, k, v = (widened(x) for x in (self.q[0][:, :self.group], self.k[0][:, 0], self.v[0][:, 0]))
        scores = np.einsum("ngd,md->ngm", q, k) / math.sqrt(self.dim)
        keys, queries = self.requests[0]
        scores[np.broadcast_to(~self.seen(keys, queries)[:, None], scores.shape)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        exact = np.einsum("ngm,md->ngd", weights / weights.sum(-1, keepdims=True), v)
        return float(np.linalg.norm(o - exact) / np.linalg.norm(exact))

    @staticmethod
    def seen(keys, queries):
        return np.arange(keys)[None] <= np.arange(keys - queries, keys)[:, None]


def bits(random, shape):
    values = random.standard_normal(shape, dtype=np.float32).view(np.uint32)
    return ((values + 0x7fff + (values >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def least(call, runs=3):
    """(seconds of the fastest, the last result), after one that does not count."""
    result, seconds = call(), math.inf
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, result


class Torch:
    """Requests of equal lengths are one call, others one each. `forms`: by name, what computes heads first."""

    def __init__(self, mix):
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.torch, self.mix = torch, mix
        parts = [range(len(mix.requests))] if mix.alike else [[i] for i in range(len(mix.requests))]
        self.calls = [tuple(self.heads_first([of[i] for i in part]) for of in (mix.q, mix.k, mix.v)) for part in parts]
        self.masks = [mix.seen(*mix.requests[part[0]]) for part in parts]
        self.masks = [None if mask.all() else torch.from_numpy(mask) for mask in self.masks]
        self.row_masks = [None if mask is None else mask.repeat(mix.group, 1) for mask in self.masks]
        self.forms = {"grouped heads": self.grouped, "heads as rows": self.as_rows, "products": self.products}

    def heads_first(self, arrays):
        whole = np.stack([array.transpose(1, 0, 2) for array in arrays])
        return self.torch.from_numpy(whole.view(np.int16)).view(self.torch.bfloat16)

    def rows(self, q):
        """Queries of the heads that share a key head, one head after the other."""
        batch, _, queries, dim = q.shape
        return q.reshape(batch, self.mix.kv_heads, self.mix.group * queries, dim)

    def grouped(self, q, k, v, mask, _):
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    def as_rows(self, q, k, v, _, mask):
        return self.torch.nn.functional.scaled_dot_product_attention(self.rows(q), k, v, attn_mask=mask).view_as(q)

    def products(self, q, k, v, _, mask):
        scores = (self.rows(q) @ k.mT).float().mul_(1 / math.sqrt(self.mix.dim))
        if mask is not None:
            scores.masked_fill_(~mask, -math.inf)
        return (scores.softmax(-1).to(v.dtype) @ v).view_as(q)

    def run(self):
        found = {}
        with self.torch.inference_mode():
            for name, form in self.forms.items():
                found[name] = least(lambda form=form: [form(*call, *masks) for call, *masks in
                                                       zip(self.calls, self.masks, self.row_masks)])
        fastest = min(found, key=lambda name: found[name][0])
        self.last = found[fastest][1]
        return {"seconds": found[fastest][0], "form": fastest}

    def error(self):
        return self.mix.error(self.last[0][0, :self.mix.group].transpose(0, 1).double().numpy())


class Zentorch(Torch):
    def __init__(self, mix):
        import zentorch

        super().__init__(mix)
        self.forms = {f"zentorch {zentorch.__version__}": self.zen}
        self.row_masks = [None if mask is None else self.torch.zeros(mask.shape, dtype=self.torch.bfloat16)
                          .masked_fill_(~mask, -math.inf) for mask in self.row_masks]

    def zen(self, q, k, v, _, mask):
        return self.torch.ops.zentorch.zentorch_sdpa(self.rows(q), k, v, 0.0, False, attn_mask=mask)[0].reshape(q.shape)


class Vllm:
    """Its cache is packed when tokens come, and its metadata serve all layers: neither is timed."""

    def __init__(self, mix):
        import torch
        from vllm import _custom_ops as ops

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        if torch.cpu._is_amx_tile_supported():
            torch.cpu._init_amx()
        self.torch, self.ops, self.mix = torch, ops, mix
        isa = "amx" if torch.cpu._is_amx_tile_supported() else "vec"
        page = mix.page or 64
        self.form = f"pages of {page}, {isa}"
        pages = [-(-keys // page) for keys, _ in mix.requests]
        ends = list(itertools.accumulate(pages, initial=0))
        self.keys, self.values = torch.zeros(2, ends[-1], mix.kv_heads, page, mix.dim, dtype=torch.bfloat16)
        slots = [first * page + np.arange(keys) for first, (keys, _) in zip(ends, mix.requests)]
        ops.cpu_attn_reshape_and_cache(self.tensor(mix.k), self.tensor(mix.v), self.keys, self.values,
                                       torch.from_numpy(np.concatenate(slots)), isa)
        self.q = self.tensor(mix.q)
        self.o = torch.empty_like(self.q)
        starts = list(itertools.accumulate((queries for _, queries in mix.requests), initial=0))
        self.starts = torch.tensor(starts, dtype=torch.int32)
        self.lengths = torch.tensor([keys for keys, _ in mix.requests], dtype=torch.int32)
        self.table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
        for row, first, count in zip(self.table, ends, pages):
            row[:count] = torch.arange(first, first + count)
        self.metadata = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(mix.requests), num_heads=mix.heads, num_kv_heads=mix.kv_heads, head_dim=mix.dim,
            seq_lens=self.lengths, dtype=torch.bfloat16, query_start_loc=self.starts, causal=True,
            sliding_window_size=-1, isa=isa, enable_kv_split=True)

    def tensor(self, arrays):
        return self.torch.from_numpy(np.concatenate(arrays).view(np.int16)).view(self.torch.bfloat16)

    def attend(self):
        self.ops.cpu_attention_with_kv_cache(
            query=self.q, key_cache=self.keys, value_cache=self.values, output=self.o, query_start_loc=self.starts,
            seq_lens=self.lengths, scale=1 / math.sqrt(self.mix.dim), causal=True, alibi_slopes=None,
            sliding_window=-1, block_table=self.table, softcap=0.0, scheduler_metadata=self.metadata, s_aux=None)

    def run(self):
        with self.torch.inference_mode():
            return {"seconds": least(self.attend)[0], "form": self.form}

    def error(self):
        return self.mix.error(self.o[:self.mix.requests[0][1], :self.mix.group].double().numpy())


class OpenVino:
    """A model of each length, in bf16; the heads that share a key head are rows."""

    def __init__(self, mix):
        import openvino
        from openvino import opset13

        self.mix, core, self.requests = mix, openvino.Core(), []
        bf16 = openvino.Type.bf16
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0))})
        for (keys, queries), q, k, v in zip(mix.requests, mix.q, mix.k, mix.v):
            rows = mix.group * queries
            shapes = [(1, mix.kv_heads, count, mix.dim) for count in (rows, keys, keys)]
            nodes = [opset13.parameter(shape, bf16) for shape in shapes]
            inputs = list(nodes)
            if queries > 1:
                seen = np.tile(mix.seen(keys, queries), (mix.group, 1))
                inputs.append(opset13.constant(seen))
            model = openvino.Model([opset13.scaled_dot_product_attention(*inputs, causal=False)], nodes)
            request = core.compile_model(model, "CPU").create_infer_request()
            grouped = q.transpose(1, 0, 2).reshape(mix.kv_heads, rows, mix.dim)
            for i, array in enumerate((grouped, k.transpose(1, 0, 2), v.transpose(1, 0, 2))):
                tensor = openvino.Tensor(bf16, shapes[i])
                tensor.data.view(np.uint16)[...] = array[None]
                request.set_input_tensor(i, tensor)
            self.requests.append(request)
        self.form = f"OpenVINO {openvino.__version__.split('-')[0]}"

    def run(self):
        return {"seconds": least(lambda: [request.infer() for request in self.requests])[0], "form": self.form}

    def error(self):
        keys, queries = self.mix.requests[0]
        o = self.requests[0].get_output_tensor(0)
        data = o.data.view(np.uint16) if o.data.itemsize == 2 else o.data
        first = data.reshape(self.mix.kv_heads, self.mix.group, queries, self.mix.dim)[0].transpose(1, 0, 2)
        return self.mix.error(widened(first) if first.dtype == np.uint16 else first.astype(np.float64))


SYSTEMS = {"PyTorch": Torch, "vLLM": Vllm, "zentorch": Zentorch, "OpenVINO": OpenVino}


def main():
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what systems print is not an answer

    def answer(what):
        print(json.dumps(what), file=own, flush=True)

    try:
        system = SYSTEMS[sys.argv[1]](Mix(json.loads(sys.argv[2])))
    except Exception as error:
        return answer({"skipped": (f"{type(error).__name__}: {error}".splitlines() or ["no reason"])[0]})
    answer({})
    for word in sys.stdin:
        answer(system.run() if word.strip() == "run" else {"error": system.error()})
    return None


if __name__ == "__main__":
    main()
