"""Code for one instruction set stays by itself, and the one that is asked for is the one that runs.

Arguments: the program that lists symbols, and ISA=OBJECT for every object that was compiled for an instruction set.
"""

import json
import os
import re
import sys
import tempfile

from house import BUILD, CMAKE, SOURCE, expect, run, run_well


def check_symbols(nm, isa, path):
    """Whatever the linker could share with other code belongs to the instruction set's own namespace."""
    entries = []
    for line in run_well(nm, "--demangle", "--defined-only", "--extern-only", path).splitlines():
        match = re.match(r"[0-9a-f]+ (\w) (.*)", line)
        if match is None:
            continue
        kind, name = match.groups()
        if name.startswith("DW.ref."):  # an address that unwinding needs, and no code
            continue
        expect(f"isa_{isa}::" in name, f"{path} defines {name}, which code for other processors may be given")
        if kind not in "WVu":
            entries.append(name)
    expect(len(entries) == 1 and entries[0].endswith((f"isa_{isa}::vector_kernels", f"isa_{isa}::tile_functions")),
           f"{path} exports {entries}, not its table alone")


def cpu(isa):
    done = run(BUILD / "bin/distattn", "info", "--json", env={**os.environ, "DISTATTN_ISA": isa})
    expect(done.returncode == 0, f"info fails under DISTATTN_ISA={isa}: {done.stdout}")
    return next(backend for backend in json.loads(done.stdout)["backends"] if backend["name"] == "cpu")


def check_choice(isas):
    best = cpu("")
    expect(best["usable"] and "the widest" in best["why"], f"no reason for the choice: {best}")
    for isa in isas:
        forced = cpu(isa)
        if forced["usable"]:
            expect(forced["why"].startswith(isa + " "), f"DISTATTN_ISA={isa} gave {forced['why']}")
        else:
            expect("lacks" in forced["why"], f"{isa} is not usable for no reason: {forced['why']}")
            expect(isa != "amx" or "AMX" in forced["why"], f"amx lacks {forced['why']}")
            print(f"{isa}: {forced['why']}")
    unknown = cpu("avx1024")
    expect(not unknown["usable"] and all(isa in unknown["why"] for isa in isas), f"avx1024 is {unknown}")


def check_native(isas):
    """A build with DISTATTN_CPU_KERNELS=NATIVE has what this processor would use, and no other vectors."""
    with tempfile.NamedTemporaryFile("w", suffix=".cmake") as script:
        script.write(f'include("{SOURCE}/cmake/DistattnProcessor.cmake")\ndistattn_native_sets(sets)\nmessage("${{sets}}")\n')
        script.flush()
        native = run_well(CMAKE, "-P", script.name).split()[-1].split(";")
    usable = [isa for isa in isas if cpu(isa)["usable"]]
    vectors = next(isa for isa in ("avx512", "avx2", "generic") if isa in usable)
    pairs = [isa for isa in usable if isa in ("avx512_bf16", "amx")]
    expect(native[0] == vectors and set(pairs) <= set(native[1:]),
           f"NATIVE builds {native}, of {usable} that this processor has")


def check_refusal():
    """What the environment misspells is bad input, not a reason to compute with something slower."""
    shape = ["--seq", "16", "--heads", "2", "--head-dim", "8"]
    for command in (["run", "--random", *shape], ["run", "--random", *shape, "--backend", "cpu"], ["bench", *shape],
                    ["bench", "--kernel", "copy"], ["validate", *shape]):
        for isa in "avx1024", "AVX2":
            done = run(BUILD / "bin/distattn", *command, env={**os.environ, "DISTATTN_ISA": isa})
            expect(done.returncode == 2 and f"DISTATTN_ISA={isa} is not" in done.stdout,
                   f"{command} under DISTATTN_ISA={isa} exits {done.returncode}: {done.stdout}")
    reference = run(BUILD / "bin/distattn", "run", "--random", *shape, "--backend", "reference",
                    env={**os.environ, "DISTATTN_ISA": "avx1024"})
    expect(reference.returncode == 0, f"the reference needs no instruction set: {reference.stdout}")


nm, *objects = sys.argv[1:]
built = [argument.split("=", 1) for argument in objects]
names = sorted({name for name, _ in built})
expect("generic" in names, "no code that runs everywhere")
for name, object_file in built:
    check_symbols(nm, name, object_file)
check_choice(names)
check_native(names)
check_refusal()
