#!/usr/bin/env python3
"""Tells of Hopper kernels, from their machine code, what one round of the main loop executes. Needs no GPU.

Usage: tests/hopper_code/hopper_code.py show FILE... [--only PATTERN] [--title NAME] [--groups N]
                                                      [--scheduler behind|greedy] [--json]
       tests/hopper_code/hopper_code.py record LIMITS FILE...
       tests/hopper_code/hopper_code.py check LIMITS FILE...
  FILE    a cubin, or an object or library with code for sm_90a
  show    a table: counts are facts of the code; solo, period and cut are *modelled* cycles (model.py), not measured
  record  writes what `check` compares with: read the difference before it is committed
  check   exits 1 if a wait, a turn or a product stands elsewhere, spills or masks enter full tiles, or a round has
          2 % more instructions or stalls than recorded; 77 if another ptxas than the recorded one made the code
nvdisasm and cuobjdump: $DISTATTN_NVDISASM and $DISTATTN_CUOBJDUMP, or those of the folder $DISTATTN_CUDA_TOOLS, of PATH,
or of pip's nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump beside this interpreter.
"""

import argparse
import collections
import glob
import json
import os
import re
import shutil
import sys

import machine_code
import model

NOT_WORSE = 1.02
OTHER_PTXAS = 77


def tool(name):
    folder = os.environ.get("DISTATTN_CUDA_TOOLS", "")
    of_pip = glob.glob(f"{sys.prefix}/lib/python3*/site-packages/nvidia/*/bin/{name}")
    of_folder = os.path.join(folder, name) if folder else None
    for found in (os.environ.get(f"DISTATTN_{name.upper()}"), of_folder, shutil.which(name), *of_pip):
        if found and os.access(found, os.X_OK):
            return found
    sys.exit(f"hopper_code: there is no {name} (it reads machine code): pip install nvidia-cuda-{name}")


def groups_of(name):
    """Warpgroups that multiply, of our kernels."""
    tuning = re.search(r"HopperAttendTuning\{\d+, (\d)", name)
    return int(tuning[1]) if tuning else 2


def order_of(way):
    """Waits and turns, each with the number of exponentials and products before it."""
    exponentials, products, order = 0, 0, []
    for i, _ in way:
        exponentials += i.kind == "MUFU"
        products += i.is_product
        if i.op.startswith("WARPGROUP.DEPBAR"):
            order.append([f"wait {int(i.arguments.split(',')[1], 16)}", exponentials, products])
        elif i.kind == "BAR":
            order.append([i.op.split(".")[1].lower(), exponentials, products])
    return order


def products_of(way):
    shapes = (f"64x{i.columns} {'RS' if i.left_in_registers else 'SS'}" for i, _ in way if i.is_product)
    return dict(collections.Counter(shapes))


def facts_of(way):
    kinds = machine_code.counts(way)
    return {"instructions": len(way), "stalls": sum(i.stall for i, _ in way), "products": products_of(way),
            "order": order_of(way), "selects": kinds.get("FSEL", 0) + kinds.get("SEL", 0),
            "spills": kinds.get("LOCAL", 0)}


def facts(kernel):
    rounds = machine_code.main_loop(kernel)
    if rounds is None:
        return None, None
    told = {"full": facts_of(rounds.full), "registers": kernel.registers(), "spills": kernel.local_accesses()}
    if rounds.cut:
        told["cut"] = {key: value for key, value in facts_of(rounds.cut).items() if key in ("instructions", "stalls")}
    return told, rounds


def read(files, pattern="."):
    """({name: (facts, rounds)}, versions of ptxas)"""
    told, made_by = {}, set()
    for file in files:
        kernels, versions = machine_code.read_kernels(file, tool("nvdisasm"), tool("cuobjdump"))
        made_by |= set(versions)
        for kernel in kernels:
            if kernel.code and re.search(pattern, kernel.name):
                found, rounds = facts(kernel)
                if found:
                    told[kernel.name] = found, rounds
    if not told:
        sys.exit(f"hopper_code: no kernel that multiplies in a loop (in {' '.join(files)}): is it code for sm_90a?")
    return told, sorted(made_by)


def modelled(rounds, groups, scheduler):
    told = {"groups": groups, "solo": model.period(rounds.full, 1)}
    for arbiter in model.ARBITERS:
        told[f"period {arbiter}"] = model.period(rounds.full, groups, arbiter, scheduler)
        told[f"cut {arbiter}"] = (model.more_if_cut(rounds.full, rounds.cut, groups, arbiter, scheduler)
                                  if rounds.cut else None)
    tensor = groups * sum(model.product_cost(i)[0] for i, _ in rounds.full if i.is_product)
    operands = groups * sum(model.product_cost(i)[1] for i, _ in rounds.full if i.is_product) / model.SHARED_BYTES
    return told | {"tensor": round(tensor), "operands": round(operands)}


def words(order):
    return ", ".join(f"{what} after {exponentials}" for what, exponentials, _ in order)


def show(arguments):
    told, made_by = read(arguments.files, arguments.only)
    rows = []
    for name, (found, rounds) in told.items():
        groups = arguments.groups or groups_of(name)
        rows.append({"kernel": arguments.title or name, **found, **modelled(rounds, groups, arguments.scheduler)})
    if arguments.json:
        print(json.dumps({"ptxas": made_by, "kernels": rows}, indent=1))
        return
    print(f"code of ptxas {', '.join(made_by) or 'unknown'}; solo, period and cut are modelled cycles")
    print("| kernel | products | instructions; stalls | registers; spills | waits and turns, after … exponentials "
          "| selects | tensor; operands | solo | period fifo; rr "
          "| cut tile: instructions, stalls, cycles more fifo; rr |")
    print("|---" * 10 + "|")
    for row in rows:
        full, cut = row["full"], row.get("cut")
        more = (f"{cut['instructions'] - full['instructions']:+}, {cut['stalls'] - full['stalls']:+}, "
                f"{row['cut fifo']}; {row['cut rr']}") if cut else "–"
        print(f"| {row['kernel']} | {', '.join(f'{n}×{shape}' for shape, n in full['products'].items())} "
              f"| {full['instructions']}; {full['stalls']} | {'/'.join(map(str, row['registers']))}; {row['spills']} "
              f"| {words(full['order'])} | {full['selects']} | {row['tensor']}; {row['operands']} | {row['solo']} "
              f"| {row['period fifo']}; {row['period rr']} | {more} |")


def record(arguments):
    told, made_by = read(arguments.files)
    kernels = {name: found for name, (found, _) in sorted(told.items())}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in kernels.items())
    with open(arguments.limits, "w") as file:
        file.write(f'{{"ptxas": {json.dumps(made_by)}, "kernels": {{\n{lines}\n}}}}\n')
    print(f"{len(kernels)} kernels recorded")


def complaints_about(now, limit):
    """What is worse than recorded, in words."""
    for part in ("full", "cut"):
        if (part in now) != (part in limit):
            yield f"has {'a' if part in now else 'no'} round of {part} tiles, unlike what was recorded"
            continue
        for key in ("instructions", "stalls"):
            if part in limit and now[part][key] > limit[part][key] * NOT_WORSE:
                yield f"takes {now[part][key]} {key} in a {part} tile, {limit[part][key]} were recorded"
    full, before = now["full"], limit["full"]
    if full["order"] != before["order"]:
        yield f"waits elsewhere: {full['order']}, recorded {before['order']}"
    if full["products"] != before["products"]:
        yield f"multiplies {full['products']}, recorded {before['products']}"
    if full["selects"] > before["selects"]:
        yield f"hides scores of full tiles: {full['selects']} selects, {before['selects']} were recorded"
    for where, here, there in (("a full tile", full, before), ("the kernel", now, limit)):
        if here["spills"] > there["spills"]:
            yield f"has {here['spills']} accesses to local memory in {where}, {there['spills']} were recorded"
    if now["registers"] != limit["registers"]:
        yield f"asks for registers {now['registers']}, recorded {limit['registers']}"


def check(arguments):
    with open(arguments.limits) as file:
        limits = json.load(file)
    told, made_by = read(arguments.files)
    if made_by != limits["ptxas"]:
        print(f"the code is of ptxas {made_by}, the limits of {limits['ptxas']}")
        sys.exit(OTHER_PTXAS)
    complaints = [f"{name} is not recorded" for name in told if name not in limits["kernels"]]
    for name, limit in limits["kernels"].items():
        if name not in told:
            complaints.append(f"{name} is missing, or multiplies in no loop")
        else:
            complaints += [f"{name} {complaint}" for complaint in complaints_about(told[name][0], limit)]
    print("\n".join(complaints) or f"{len(told)} kernels are as recorded")
    sys.exit(1 if complaints else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("show", show), ("record", record), ("check", check)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        if function is show:
            command.add_argument("--only", default=".", help="a regular expression that names of kernels match")
            command.add_argument("--title", help="what to call the kernel")
            command.add_argument("--groups", type=int, help="warpgroups that multiply, of kernels that are not ours")
            command.add_argument("--scheduler", choices=model.SCHEDULERS, default="behind",
                                 help="whose instruction goes first: of the warp that is behind, or of the last one")
            command.add_argument("--json", action="store_true")
        else:
            command.add_argument("limits")
        command.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
