"""A build with CUDA holds code for its architectures, starts on any machine and says why it cannot compute there.

Arguments: the architectures that were asked for, and cuobjdump or nothing.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

from house import BUILD, expect, run, run_well

LIBRARY = BUILD / "lib/libdistattn.so"
COMMAND = BUILD / "bin/distattn"


def check_linking():
    """Drivers and libraries of NVIDIA are looked for when they are needed, not when the program starts."""
    for binary in (LIBRARY, COMMAND):
        if not binary.exists():
            continue
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run_well("readelf", "--dynamic", binary))
        expect(needed, f"{binary} needs nothing at all")
        linked = [name for name in needed if re.match(r"lib(cuda|nccl|cudnn|nv)", name)]
        expect(not linked, f"{binary} does not start without {linked}")


def check_code(cuobjdump, architectures):
    """A kernel for each: "90a-real" is code alone, "80" is PTX too."""
    binary = LIBRARY if LIBRARY.exists() else COMMAND
    for architecture in architectures:
        name, _, kind = architecture.partition("-")
        for wanted, option in (("real", "--list-elf"), ("virtual", "--list-ptx")):
            if kind in ("", wanted):
                listed = run_well(cuobjdump, option, binary)
                expect(f".sm_{name}." in listed, f"no {wanted} code for {name}:\n{listed}")


def info_of(kind, name, environment):
    infos = json.loads(run_well(COMMAND, "info", "--json", env=environment))[kind]
    return next(info for info in infos if info["name"] == name)


def check_refused(info, environment, *command):
    """Exit 3 and one line, which says why."""
    done = run(COMMAND, *command, env=environment)
    expect(done.returncode == 3 and info["why"] in done.stdout and len(done.stdout.splitlines()) == 1,
           f"exit {done.returncode}: {done.stdout}")


def compile_library(folder, name, text):
    source = folder / "library.c"
    source.write_text(text)
    run_well(os.environ["CC"], "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name, source)


def check_without_gpu():
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    info = info_of("backends", "cuda", environment)
    expect(info["built"] and not info["usable"] and info["why"], f"usable without a GPU: {info}")
    check_refused(info, environment, "validate", "--backend", "cuda")
    run_something = ("run", "--random", "--seq", "64", "--heads", "1", "--head-dim", "32")
    check_refused(info, environment, *run_something, "--backend", "cuda")
    for provider in ("own", "cudnn"):
        check_refused(info_of("providers", provider, environment), environment, *run_something, "--provider", provider)


def check_other_libraries(folder):
    """A driver that is too old, and libraries that are not what their names say."""
    compile_library(folder, "libcuda.so.1", "int cuDriverGetVersion(int *version) { *version = 11040; return 0; }\n"
                                            "int cuInit(unsigned flags) { return (int)flags; }\n")
    compile_library(folder, "libcudnn.so.9", "int nothing;\n")
    compile_library(folder, "libnccl.so.2", "int nothing;\n")
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    for kind, name, why in (("backends", "cuda", "the NVIDIA driver is too old: it serves CUDA 11.4"),
                            ("providers", "cudnn", "libcudnn.so.9 has no cudnnGetVersion"),
                            ("transports", "nccl", "libnccl.so.2 has no ncclGetVersion")):
        info = info_of(kind, name, environment)
        if not info["built"]:
            continue
        expect(not info["usable"] and why in info["why"], f"no reason: {info}")
        check_refused(info, environment, "run", "--random", "--seq", "64", "--heads", "1", "--head-dim", "32",
                      f"--{kind[:-1]}", name)


check_linking()
check_without_gpu()
with tempfile.TemporaryDirectory() as name:
    check_other_libraries(pathlib.Path(name))
architectures_asked, cuobjdump_found = sys.argv[1:]
if cuobjdump_found:
    check_code(cuobjdump_found, architectures_asked.split(","))
else:
    print("the architectures were not looked at (there is no cuobjdump)")
