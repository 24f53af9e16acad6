"""Every file of C, C++ and CUDA is as clang-format writes it.

Versions of clang-format differ in what they write, so one decides: that of Debian 12.
"""

import re
import shutil
import subprocess

from house import CODE, SOURCE, expect, fail, run_well, skip

VERSION = 14
ROOMS = ("core", "kernels", "backends", "cli", "tests")

program = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
if program is None:
    skip("clang-format is not installed (apt-get install clang-format)")
version = run_well(program, "--version")
if not re.search(rf"version {VERSION}\.", version):
    skip(f"clang-format {VERSION} decides, and this is {version.strip()}")

files = [path for room in ROOMS for path in sorted((SOURCE / room).rglob("*")) if path.suffix in CODE]
expect(len(files) > 700, f"files are missing: there are {len(files)}")


def complaints(paths):
    """What is not as it would be written, one line a place: file:line."""
    done = subprocess.run([program, "--dry-run", "--style=file", *paths], cwd=SOURCE, text=True, capture_output=True, check=True)
    return re.findall(r"^(\S+:\d+):\d+: warning: code should be clang-formatted", done.stderr, re.M)


def check_the_check():
    """A line that is not formatted is found."""
    done = subprocess.run([program, "--style=file:" + str(SOURCE / ".clang-format"), "--dry-run", "--assume-filename=a.cpp"],
                          input="int  two( );\n", text=True, capture_output=True, check=True)
    expect("code should be clang-formatted" in done.stderr, f"a fault is not found: {done.stderr}")


check_the_check()
found = complaints([path.relative_to(SOURCE) for path in files])
for place in found:
    print(place)
if found:
    names = sorted({place.split(":")[0] for place in found})
    fail(f"{len(found)} places are not formatted; run: clang-format -i {' '.join(names)}")
print(f"{len(files)} files")
