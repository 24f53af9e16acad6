"""Placements over UCX: random masks in several parts, each rank a process, both passes against float64.

masks.py BINARY [COUNT] [MOST_RANKS] [SEED]
"""

import json
import random
import sys

from ranks import SCRATCH, clean_up, expect, finish, start_ranks

COUNT, MOST_RANKS, SEED = (int(sys.argv[at]) if len(sys.argv) > at else usual for at, usual in ((2, 8), (3, 5), (4, 1)))


def ends_of(chance, tokens):
    return sorted({0, tokens, *(chance.randint(1, tokens) for _ in range(chance.randint(1, 6)))})


def documents(chance, tokens):
    options = ["--cu-seqlens", ",".join(map(str, ends_of(chance, tokens)))]
    if chance.random() < 0.3:
        options += ["--window", f"{chance.randint(1, tokens)},0"]
    if chance.random() < 0.3:
        options += ["--mask", "full"]
    return options


def shared_questions(chance, tokens):
    """Some positions of a part are its question, the others answers that see it and themselves."""
    bands = []
    ends = ends_of(chance, tokens)
    for begin, end in zip(ends, ends[1:]):
        question = chance.randint(begin + 1, end)
        bands.append({"q": [begin, question], "k": [begin, question], "diff": [0, None]})
        answers = sorted({question, end, *(chance.randint(question, end) for _ in range(chance.randint(0, 3)))})
        for first, last in zip(answers, answers[1:]):
            bands.append({"q": [first, last], "k": [begin, question], "diff": [None, None]})
            bands.append({"q": [first, last], "k": [first, last], "diff": [0, None]})
    path = SCRATCH / f"mask-{len(list(SCRATCH.iterdir()))}.json"
    path.write_text(json.dumps(bands))
    return ["--mask", path]


def main():
    chance = random.Random(SEED)
    for number in range(COUNT):
        ranks, tokens = chance.randint(2, MOST_RANKS), chance.randint(20, 400)
        heads = chance.choice([(4, 2), (4, 4), (6, 2), (2, 1)])
        mask = chance.choice([documents, shared_questions])(chance, tokens)
        arguments = ["run", "--random", "--check", "--json", "--backward", "--backend", "reference", "--transport", "ucx",
                     "--schedule", "placed", "--seq", tokens, "--heads", heads[0], "--kv-heads", heads[1], "--head-dim",
                     "8", "--dtype", "bf16", "--threads", "1", "--machine",
                     chance.choice(["dgx-h100x8", "ethernet-h100x64", "dgx-a100x2"]), "--balance-tokens",
                     chance.choice(["0", "0.005", "0.5"]), *mask]
        ends = finish(start_ranks(ranks, *arguments))
        expect(all(code == 0 for code, _, _ in ends), number, ranks, arguments, ends)
        result = json.loads(ends[0][1])
        errors = [result["error"][name] for name in ("o", "lse", "dq", "dk", "dv")]
        # Inputs are 16 bit, everything else is not.
        expect(result["schedule"] == "placed" and max(errors) <= 1e-4, number, ranks, arguments, ends[0][1])
    print(f"seed {SEED}: {COUNT} masks on up to {MOST_RANKS} processes agree with float64")


try:
    main()
finally:
    clean_up()
