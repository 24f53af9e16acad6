"""clang-tidy has nothing to say of the public headers, with the settings of `.clang-tidy`.

Versions differ in what they say, so one decides: that of Debian 12. Rooms that are named, as in `clang_tidy.py core
backends cli`, are looked at as well, which takes minutes of processor time for each.
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
ROOMS = sys.argv[1:]

program = shutil.which(f"clang-tidy-{VERSION}") or shutil.which("clang-tidy")
if program is None:
    skip("clang-tidy is not installed (apt-get install clang-tidy)")
version = run_well(program, "--version")
if not re.search(rf"version {VERSION}\.", version):
    skip(f"clang-tidy {VERSION} decides, and this is {version.strip()}")
commands = BUILD / "compile_commands.json"
if not commands.exists():
    skip(f"the build wrote no {commands.name} (CMAKE_EXPORT_COMPILE_COMMANDS is off)")


def said_of(file, *options):
    return subprocess.run([program, "--quiet", f"--config-file={SOURCE / '.clang-tidy'}", file, *options], text=True,
                          capture_output=True, check=False).stdout


def remarks(file, *options):
    """What it says of a file and of all that the file includes of ours, one line a place. What it says twice counts once."""
    return set(re.findall(r"^(\S+:\d+:\d+: (?:warning|error): .*)$", said_of(file, *(options or ("-p", BUILD))), re.M))


def check_the_check():
    """A fault is found."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "fault.cpp"
        file.write_text("int* nothing() { int* x; return x; }\n", encoding="utf-8")
        said = said_of(file, "--")
        expect("cppcoreguidelines-init-variables" in said, f"a fault is not found: {said}")


def of_headers():
    """What it says of the public headers of C++: names of the C API are C's."""
    headers = sorted((SOURCE / "core/include/distattn").glob("*.hpp"))
    expect(len(headers) > 40, f"headers are missing: there are {len(headers)}")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "headers.cpp"
        file.write_text("".join(f'#include "distattn/{header.name}"\n' for header in headers), encoding="utf-8")
        return remarks(file, "--", "-std=c++20", f"-I{SOURCE / 'core/include'}")


def belongs(file):
    """Whether one of the rooms holds it, or was built from it. What cmake writes of data files is theirs to judge."""
    if file.name == "embedded_data.cpp":
        return False
    return any(file.is_relative_to(root / room) for root in (BUILD, SOURCE) for room in ROOMS)


check_the_check()
files = {pathlib.Path(entry["file"]) for entry in json.loads(commands.read_text(encoding="utf-8"))
         if "nvcc" not in entry["command"].split()[0]}
files = sorted(file for file in files if belongs(file))
expect(len(files) >= 10 * len(ROOMS), f"files are missing: there are {len(files)}")
with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
    found = sorted(of_headers().union(*pool.map(remarks, files)))
for remark in found:
    print(remark)
if found:
    fail(f"{len(found)} remarks")
print(f"the public headers, {len(files)} files of rooms")
