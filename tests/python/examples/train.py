"""Trains a small Llama on the bytes of a text, its sequence sharded over the processes that torchrun starts.

    torchrun --nproc-per-node 4 train.py TEXT [--steps 50] [--seq 1024] [--attention distattn]
"""

import argparse
import pathlib

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig

import distattn.torch
import distattn.transformers


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--attention", default="distattn")  # sdpa: PyTorch's, on one process
    return parser.parse_args()


def model_of(attention):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention)


def train(options):
    dist.init_process_group("gloo")
    sharding = distattn.torch.Sharding(seq=options.seq, comm=distattn.torch.init())
    distattn.transformers.register(sharding=sharding)
    model = model_of(options.attention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.tensor(list(options.text.read_bytes()))
    for step in range(options.steps):
        begin = step * options.seq % (len(text) - options.seq)
        tokens = text[None, begin:begin + options.seq]  # the whole sequence, on every rank
        loss = model(**distattn.transformers.shard_batch(tokens, sharding), use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach().clone()
        for part in (total, *(parameter.grad for parameter in model.parameters())):
            dist.all_reduce(part)  # a rank has its tokens' part of both
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {total:.6f}", flush=True)
    dist.destroy_process_group()


train(parse())
