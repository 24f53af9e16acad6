"""ptxas keeps what Hopper's kernels are written for: weights are made while something is multiplied, not after the wait.

Arguments: cuobjdump or nothing, and a list of objects with kernels that weigh between two waits.
"""

import re
import sys

from house import expect, run_well, skip

WAIT, PRODUCTS, WEIGHT = r"WARPGROUP\.DEPBAR", r"WARPGROUP\.ARRIVE", r"MUFU\.EX2"


def kernels_of(text):
    """(name, instructions) of a disassembly."""
    for kernel in re.split(r"\n\s+Function : ", text)[1:]:
        name, _, body = kernel.partition("\n")
        yield name, [line for line in body.split("\n") if re.search(f"{WAIT}|{PRODUCTS}|{WEIGHT}", line)]


def complaint_about(instructions):
    """From the wait that leaves a product running: all weights come before the next wait."""
    def position(pattern, begin):
        return next((i for i in range(begin, len(instructions)) if re.search(pattern, instructions[i])), None)

    scores = position(WAIT + r".*0x1", 0)
    second = position(WAIT, scores + 1) if scores is not None else None
    products = position(PRODUCTS, second) if second is not None else None
    if products is None:
        return "has no two waits with products behind them"
    weights = [i for i in range(scores, products) if re.search(WEIGHT, instructions[i])]
    late = sum(i > second for i in weights)
    return f"makes {late} of {len(weights)} weights after the wait" if late or not weights else None


def check_the_check():
    wait, last = "WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.DEPBAR.LE gsb0, 0x0"
    expect(complaint_about([wait, "MUFU.EX2", last, "WARPGROUP.ARRIVE"]) is None, "what is well is complained about")
    for bad in ([wait, last, "MUFU.EX2", "WARPGROUP.ARRIVE"], [wait, last, "WARPGROUP.ARRIVE"], [last]):
        expect(complaint_about(bad), f"nobody complains about {bad}")


check_the_check()
cuobjdump, objects = sys.argv[1:]
if not cuobjdump:
    skip("there is no cuobjdump")
kernels = [kernel for file in objects.split(";") for kernel in kernels_of(run_well(cuobjdump, "-arch", "sm_90a", "-sass", file))]
expect(kernels, f"no kernels in {objects}")
complaints = [f"{name} {complaint}" for name, body in kernels if (complaint := complaint_about(body))]
expect(not complaints, "\n".join(complaints))
print(f"{len(kernels)} kernels")
