#!/usr/bin/env python3
"""Trees that are none, caps, slopes and sink logits that no head can have: the right exit code and one clear line.

usage: bad_scores.py DISTATTN
"""
import math
import os
import struct
import sys
import tempfile

from bad_files import npy
from bad_input import RUN, USAGE, Checker

OPTIONS = [
    ["--global-keys", "-1"],
    *(["--softcap", cap] for cap in ("0", "-1", "nan", "inf", "1e31", "1e-40", "high")),
    *(["--sink-logits", source] for source in ("no-such-file.npy", "@logits", "logits")),
    *(["--alibi", slopes] for slopes in ("usual", "no-such-file.npy", "0.5")),
    *(["--dropout", p] for p in ("1", "-0.1", "1.5", "nan", "half")),
    ["--dropout-seed", "3"],
    ["--dropout", "0.1", "--dropout-seed", "-3"],
    ["--shared-kv", "--value-dim", "16"],
    ["--mask", "tree:"],
    ["--mask", "tree:no-such-file"],
]

# Trees for 64 tokens, and why they are none.
TREES = [
    ("", "tree.json"),
    ("{}", "tree.json is no list of nodes"),
    ("[]", "the tree has no node"),
    ('[{"length":64,"parent":0}]', "a cycle"),
    ('[{"length":32,"parent":1},{"length":32,"parent":0}]', "a cycle"),
    ('[{"length":32,"parent":1},{"length":32,"parent":null}]', "which comes later"),
    ('[{"length":64,"parent":null},{"length":1,"parent":9}]', "has parent 9"),
    ('[{"length":2147483647,"parent":null},{"length":1,"parent":0}]', "more than 2147483647 tokens"),
    ('[{"length":99999999999999999999,"parent":null}]', "tree.json"),
    ('[{"length":0,"parent":null}]', "tree.json"),
    ('[{"length":64.5,"parent":null}]', "tree.json"),
    ('[{"length":64,"parent":null,"name":"root"}]', "tree.json"),
    ('[{"length":60,"parent":null}]', "a tree of 60 tokens"),
]

# Numbers of the four heads, and what the error says.
HEADS = [([0.5] * 3, "3"), ([0.5] * 5, "5"), ([], "0"), ([0.5, math.nan, 1, 2], "head 1"), ([0.5, 1, 2, math.inf], "head 3")]


def main():
    checker = Checker(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for options in OPTIONS:
            checker.check([*RUN, *options], USAGE, folder, "scores")
        for content, says in TREES:
            with open(os.path.join(folder, "tree.json"), "w") as file:
                file.write(content)
            checker.check([*RUN, "--mask", "tree:tree.json"], USAGE, folder, "a tree that is none", says=says)
        for values, says in HEADS:
            npy(os.path.join(folder, "heads.npy"), (len(values),), data=struct.pack(f"<{len(values)}f", *values))
            for option in ("--sink-logits", "--alibi"):
                checker.check([*RUN, option, "heads.npy"], USAGE, folder, "numbers of heads", says=says)
        npy(os.path.join(folder, "four.npy"), (1, 1, 4, 1))
        checker.check([*RUN, "--sink-logits", "four.npy"], USAGE, folder, "logits in four axes", says="expected a list")
    print(f"{checker.passed} passed, {checker.failed} failed")
    return 1 if checker.failed else 0


if __name__ == "__main__":
    sys.exit(main())
