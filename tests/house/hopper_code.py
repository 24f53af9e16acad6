"""Hopper kernels are as tests/hopper_code/limits.json records them: no wait, turn or product moves unseen.

Arguments: nvdisasm and cuobjdump, or nothing for what is not here, and a list of objects.
"""

import copy
import itertools
import json
import os
import re
import sys

from house import SOURCE, expect, fail, run, skip

sys.path.insert(0, str(SOURCE / "tests/hopper_code"))
import hopper_code  # noqa: E402
import machine_code  # noqa: E402
import model  # noqa: E402

OTHER_PTXAS = 77
ROUND = """
    .section .text.kernel,"ax",@progbits
        /*0000*/                   MOV R1, R2 ;                              /* 0x0000000000000000 */
                                                                             /* 0x000fe20000000000 */
.L_x_1:
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], RZ, !UPT, gsb0 ; /* 0x0000000000000000 */
                                                                             /* 0x000fe20000000000 */
        /*0020*/                   MUFU.EX2 R3, R4 ;                         /* 0x0000000000000000 */
                                                                             /* 0x000fe20000000000 */
        /*0030*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;           /* 0x0000000000000000 */
                                                                             /* 0x000fe40000000000 */
        /*0040*/              @!P0 BRA `(.L_x_2) ;                           /* 0x0000000000000000 */
                                                                             /* 0x000fea0000000000 */
        /*0050*/                   FSEL R5, R6, -INF , P1 ;                  /* 0x0000000000000000 */
                                                                             /* 0x000fe20000000000 */
.L_x_2:
        /*0060*/              @P2  BRA `(.L_x_1) ;                           /* 0x0000000000000000 */
                                                                             /* 0x000fea0000000000 */
        /*0070*/                   EXIT ;                                    /* 0x0000000000000000 */
                                                                             /* 0x000fea0000000000 */
"""


def with_masked_loop():
    """ROUND, and behind its loop one for cut tiles: the same with a select for each of 16 scores."""
    head, end = ROUND.index(".L_x_1:"), ROUND.index("        /*0070*/")
    select = "/*0000*/ FSEL R5, R6, -INF , P1 ; /* 0x0000000000000000 */\n/* 0x000fe20000000000 */\n"
    loop = ROUND[head:end].replace("L_x_1", "L_x_3").replace("L_x_2", "L_x_4")
    branch = loop.index("        /*0040*/")
    addresses = itertools.count(0, 16)
    return re.sub(r"/\*[0-9a-f]{4}\*/", lambda _: f"/*{next(addresses):04x}*/",
                  ROUND[:end] + loop[:branch] + 16 * select + loop[branch:] + ROUND[end:])


def facts_of(text):
    kernels = machine_code.parse(text)
    expect(len(kernels) == 1, f"{len(kernels)} kernels in a disassembly of one")
    return hopper_code.facts(kernels[0])


def check_the_check():
    """On code made by hand: every fault that it is for is seen."""
    found, rounds = facts_of(ROUND)
    expect(found["full"]["instructions"] == 5 and found["full"]["selects"] == 0, f"a round is not found: {found}")
    expect(found["full"]["order"] == [["wait 0", 1, 1]] and found["full"]["products"] == {"64x128 SS": 1}, f"{found}")
    expect(not list(hopper_code.complaints_about(found, found)), "a kernel is worse than itself")
    period = model.period(rounds.full, 1)
    expect(64 <= period < 300, f"a product of 64 cycles and its wait take {period}")
    lines = ROUND.split("\n")
    exponential = next(n for n, line in enumerate(lines) if "MUFU" in line)
    before, weight, wait, after = (lines[:exponential], lines[exponential:exponential + 2],
                                   lines[exponential + 2:exponential + 4], lines[exponential + 4:])
    moved = before + wait + weight + after
    masked = [line for n, line in enumerate(lines) if not any("@!P0" in near for near in lines[n - 1:n + 1])]
    for text, word in (("\n".join(moved), "waits elsewhere"), ("\n".join(masked), "hides scores"),
                       (ROUND.replace("MUFU.EX2 R3, R4", "STL [R1], R4"), "local memory"),
                       (ROUND.replace("64x128x16", "64x64x16"), "multiplies")):
        complaints = list(hopper_code.complaints_about(facts_of(text)[0], found))
        expect(any(word in complaint for complaint in complaints), f"nobody says {word!r}: {complaints}")
    in_two_loops = facts_of(with_masked_loop())[0]
    expect(in_two_loops["full"] == found["full"], f"the loop of full tiles is not found: {in_two_loops}")
    expect(in_two_loops["cut"]["instructions"] == 5 + 16, f"the loop of cut tiles is not found: {in_two_loops}")
    longer = copy.deepcopy(found)
    longer["full"]["stalls"] += 1
    expect(list(hopper_code.complaints_about(longer, found)), "longer stalls are fine")


def change_order(limit):
    limit["full"]["order"].append(["wait 0", 0, 0])


def change_products(limit):
    limit["full"]["products"]["64x8 SS"] = 1


def shorten(limit):
    limit["full"]["stalls"] = int(limit["full"]["stalls"] / 1.03)


def hide_less(limit):
    limit["full"]["selects"] -= 1


def spill_less(limit):
    limit["full"]["spills"] = limit["spills"] = -1


MUTATED_LIMITS = (
    (change_order, "waits elsewhere"), (change_products, "multiplies"), (shorten, "stalls in a full tile"),
    (hide_less, "hides scores of full tiles"), (spill_less, "local memory in a full tile"),
    (spill_less, "local memory in the kernel"))


def check_the_limits():
    """Each recorded kernel, against limits with a fault: what CI reads the code with would not pass."""
    limits = json.loads((SOURCE / "tests/hopper_code/limits.json").read_text())["kernels"]
    expect(limits, "no kernel is recorded")
    for name, limit in limits.items():
        expect(not list(hopper_code.complaints_about(limit, limit)), f"{name} is worse than itself")
        expect(limit["spills"] == 0 and limit["full"]["spills"] == 0, f"{name} is recorded with spills")
        for change, word in MUTATED_LIMITS:
            mutated = copy.deepcopy(limit)
            change(mutated)
            complaints = list(hopper_code.complaints_about(limit, mutated))
            expect(any(word in complaint for complaint in complaints), f"{name}: nobody says {word!r}: {complaints}")


check_the_check()
check_the_limits()
nvdisasm, cuobjdump, objects = sys.argv[1:]
for name, path in (("nvdisasm", nvdisasm), ("cuobjdump", cuobjdump)):
    if not path:
        skip(f"there is no {name}")
done = run(sys.executable, "-B", SOURCE / "tests/hopper_code/hopper_code.py", "check",
           SOURCE / "tests/hopper_code/limits.json", *objects.split(";"),
           env={**os.environ, "DISTATTN_NVDISASM": nvdisasm, "DISTATTN_CUOBJDUMP": cuobjdump})
if done.returncode == OTHER_PTXAS:
    skip(done.stdout.strip())
if done.returncode != 0:
    fail(done.stdout)
print(done.stdout)
