"""clang-tidy has nothing to say of core, with the settings of `.clang-tidy`.

Versions differ in what they say, so one decides: that of Debian 12. Rooms that are named, as in `clang_tidy.py core
backends cli`, are looked at instead: all of them take minutes.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from house import BUILD, SOURCE, expect, fail, run_well, skip

VERSION = 14
ROOMS = sys.argv[1:] or ["core"]

program = shutil.which(f"clang-tidy-{VERSION}") or shutil.which("clang-tidy")
if program is None:
    skip("clang-tidy is not installed (apt-get install clang-tidy)")
version = run_well(program, "--version")
if not re.search(rf"version {VERSION}\.", version):
    skip(f"clang-tidy {VERSION} decides, and this is {version.strip()}")
commands = BUILD / "compile_commands.json"
if not commands.exists():
    skip(f"the build wrote no {commands.name} (CMAKE_EXPORT_COMPILE_COMMANDS is off)")


def remarks(file, folder=BUILD):
    """What it says of a file and of all that the file includes of ours, one line a place. What it says twice counts once."""
    done = subprocess.run([program, "--quiet", "-p", folder, f"--config-file={SOURCE / '.clang-tidy'}", file],
                          text=True, capture_output=True, check=False)
    return set(re.findall(r"^(\S+:\d+:\d+: (?:warning|error): .*)$", done.stdout, re.M))


def check_the_check():
    """A fault is found."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "fault.cpp"
        file.write_text("int* nothing() { int* x; return x; }\n", encoding="utf-8")
        said = subprocess.run([program, "--quiet", f"--config-file={SOURCE / '.clang-tidy'}", file, "--"], text=True,
                              capture_output=True, check=False).stdout
        expect("cppcoreguidelines-init-variables" in said, f"a fault is not found: {said}")


def belongs(file):
    """Whether one of the rooms holds it, or was built from it. What cmake writes of data files is theirs to judge."""
    if file.name == "embedded_data.cpp":
        return False
    return any(file.is_relative_to(root / room) for root in (BUILD, SOURCE) for room in ROOMS)


check_the_check()
files = {pathlib.Path(entry["file"]) for entry in json.loads(commands.read_text(encoding="utf-8"))
         if "nvcc" not in entry["command"].split()[0]}
files = sorted(file for file in files if belongs(file))
expect(len(files) >= 10, f"files are missing: there are {len(files)}")
with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    found = sorted(set().union(*pool.map(remarks, files)))
for remark in found:
    print(remark)
if found:
    fail(f"{len(found)} remarks")
print(f"{len(files)} files")
