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


def cuda_info(environment):
    backends = json.loads(run_well(COMMAND, "info", "--json", env=environment))["backends"]
    return next(backend for backend in backends if backend["name"] == "cuda")


def check_old_driver(folder):
    source = folder / "driver.c"
    source.write_text("int cuDriverGetVersion(int *version) { *version = 11040; return 0; }\n"
                      "int cuInit(unsigned flags) { return (int)flags; }\n")
    run_well(os.environ["CC"], "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1", source)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    info = cuda_info(environment)
    expect(info["built"] and not info["usable"], f"usable with a driver that is too old: {info}")
    expect("the NVIDIA driver is too old: it serves CUDA 11.4" in info["why"], f"no reason: {info}")
    done = run(COMMAND, "validate", "--backend", "cuda", env=environment)
    expect(done.returncode == 3 and info["why"] in done.stdout and len(done.stdout.splitlines()) == 1,
           f"exit {done.returncode}: {done.stdout}")


def check_without_gpu():
    info = cuda_info({**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    expect(info["built"] and not info["usable"] and info["why"], f"usable without a GPU: {info}")
    for command in (["run", "--seq", "64", "--heads", "1", "--head-dim", "32"], ["validate"]):
        done = run(COMMAND, *command, "--backend", "cuda", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        expect(done.returncode == 3 and info["why"] in done.stdout and len(done.stdout.splitlines()) == 1,
               f"exit {done.returncode}: {done.stdout}")


check_linking()
check_without_gpu()
with tempfile.TemporaryDirectory() as name:
    check_old_driver(pathlib.Path(name))
architectures_asked, cuobjdump_found = sys.argv[1:]
if cuobjdump_found:
    check_code(cuobjdump_found, architectures_asked.split(","))
else:
    print("the architectures were not looked at (there is no cuobjdump)")
