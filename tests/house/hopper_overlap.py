"""ptxas keeps what Hopper's kernels are written for: weights are made while something is multiplied, not after the wait.

Arguments: cuobjdump or nothing, and a list of objects with kernels that weigh between two waits.
"""

import re
import sys

from house import expect, run_well, skip

WAIT, PRODUCTS, WEIGHT = r"WARPGROUP\.DEPBAR", r"WARPGROUP\.ARRIVE", r"MUFU\.EX2"
LAST_WAIT, FILLED = WAIT + r".*0x0", r"SYNCS\.PHASECHK"
SHARED_MATRICES, BOXES_FREE, ADDED = r"STSM", r"DEPBAR\.LE SB0", r"UTMAREDG"
STATISTICS = r"\bLDS\.128"
PRODUCER, LOADED, SHARED = r"USETMAXREG\.DEALLOC", r"\bLDG", r"\bSTS\b"
PARTS = (WAIT, PRODUCTS, WEIGHT, FILLED, SHARED_MATRICES, BOXES_FREE, ADDED, STATISTICS, PRODUCER, LOADED, SHARED)


def kernels_of(text):
    """(name, instructions) of a disassembly."""
    for kernel in re.split(r"\n\s+Function : ", text)[1:]:
        name, _, body = kernel.partition("\n")
        yield name, [line for line in body.split("\n") if re.search("|".join(PARTS), line)]


def position(pattern, instructions, begin=0):
    return next((i for i in range(begin, len(instructions)) if re.search(pattern, instructions[i])), None)


def complaint_about(instructions):
    """From the wait that leaves a product running: all weights come before the next wait."""
    scores = position(WAIT + r".*0x1", instructions)
    second = position(WAIT, instructions, scores + 1) if scores is not None else None
    products = position(PRODUCTS, instructions, second) if second is not None else None
    if products is None:
        return "has no two waits with products behind them"
    weights = [i for i in range(scores, products) if re.search(WEIGHT, instructions[i])]
    late = sum(i > second for i in weights)
    return f"makes {late} of {len(weights)} weights after the wait" if late or not weights else None


def complaint_about_addition(instructions, in_halves):
    """Of a kernel of key blocks that adds to dQ, in whose loop warpgroups wait for each other."""
    scores = position(WAIT + r".*0x1", instructions)
    second = position(WAIT, instructions, scores + 1)
    added = position(ADDED, instructions, second)
    last = position(LAST_WAIT, instructions, added)
    first_products = position(PRODUCTS, instructions)
    if not any(re.search(STATISTICS, line) for line in instructions[first_products:scores]):
        return "loads no statistics before it waits for scores"
    products = position(PRODUCTS, instructions[:second], scores)
    if in_halves and (products is None or position(WEIGHT, instructions[:second], products) is None):
        return "makes all weights before it multiplies the first"
    shared = position(SHARED_MATRICES, instructions[:added], second)
    if shared is None:
        return "shares dS word by word"
    if position(BOXES_FREE, instructions[:position(WAIT, instructions, shared)], shared) is None:
        return "waits for its boxes after dQ"
    if position(FILLED, instructions[:last], added) is None:
        return "waits for the next tile's queries after its products"
    producer = position(PRODUCER, instructions)
    stored = position(SHARED, instructions, producer)
    emptied = max(i for i in range(producer, stored) if re.search(FILLED, instructions[i]))
    if position(LOADED, instructions[:stored], emptied) is not None:
        return "loads statistics after the buffer is empty"
    return None


def check_the_check():
    wait, last = "WARPGROUP.DEPBAR.LE gsb0, 0x1", "WARPGROUP.DEPBAR.LE gsb0, 0x0"
    expect(complaint_about([wait, "MUFU.EX2", last, "WARPGROUP.ARRIVE"]) is None, "what is well is complained about")
    for bad in ([wait, last, "MUFU.EX2", "WARPGROUP.ARRIVE"], [wait, last, "WARPGROUP.ARRIVE"], [last]):
        expect(complaint_about(bad), f"nobody complains about {bad}")
    good = ["WARPGROUP.ARRIVE", "LDS.128", wait, "MUFU.EX2", "WARPGROUP.ARRIVE", "MUFU.EX2 ", last, "STSM.16.M88.4",
            "DEPBAR.LE SB0, 0x0", wait, "UTMAREDG", "SYNCS.PHASECHK", last, "USETMAXREG.DEALLOC", "LDG.E", "SYNCS.PHASECHK ", "STS [R1]"]
    expect(complaint_about_addition(good, True) is None, "what is well is complained about")
    for i in (1, 4, 5, 7, 8, 11):
        bad = good[:i] + good[i + 1:]
        expect(complaint_about_addition(bad, True), f"nobody complains about {bad}")
    expect(complaint_about_addition(good[:-2] + ["SYNCS.PHASECHK", "LDG.E", "STS [R1]"], True), "late loads are fine")


check_the_check()
cuobjdump, objects = sys.argv[1:]
if not cuobjdump:
    skip("there is no cuobjdump")
kernels = [kernel for file in objects.split(";") for kernel in kernels_of(run_well(cuobjdump, "-arch", "sm_90a", "-sass", file))]
expect(kernels, f"no kernels in {objects}")
complaints = [f"{name} {complaint}" for name, body in kernels if (complaint := complaint_about(body))]
adding = [(name, body) for name, body in kernels if position(ADDED, body) is not None]
expect(adding, f"no kernel in {objects} adds to dQ")
complaints += [f"{name} {complaint}" for name, body in adding
               if (complaint := complaint_about_addition(body, "ILi64E" in name))]
expect(not complaints, "\n".join(complaints))
print(f"{len(kernels)} kernels")
