"""What C programs were compiled against still fits: distattn.h, with what it includes, as libabigail sees it, against
the recorded ABI.

A library that is built for use holds no types, so they are those of a small file that names every type and function of
the header; that the library exports these functions is looked up in the library. Functions, enumerators and members at
the end of structs that begin with struct_size may come (docs/stability.md); anything else that changes fails.

After a wanted change of the interface: c_abi.py accept BUILD_FOLDER, and read the difference.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "core/include/distattn/distattn.h"
RECORD = pathlib.Path(__file__).with_name("c_abi.xml")
WITHOUT_PLACES = ["--no-show-locs", "--no-corpus-path"]


def output_of(*command, **options):
    """(exit status, output)."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    return done.returncode, done.stdout


def whole(header):
    """The header's text with that of the headers that it includes, in their place."""
    text = re.sub(r'^#include "distattn/distattn\.h"\n', "", header.read_text().replace("#pragma once\n", ""), flags=re.M)
    return re.sub(r'^#include "distattn/(\w+\.h)".*\n', lambda line: whole(header.with_name(line[1])), text, flags=re.M)


def code_of(header):
    return re.sub(r"/\*.*?\*/", "", header, flags=re.S)


def functions(header):
    return re.findall(r"^DISTATTN_API [^(;]*?(\w+)\(", code_of(header), re.M)


def types(header):
    return sorted(set(re.findall(r"^(?:typedef [^;{]*|\} )(distattn_\w+)(?:;| \{)", code_of(header), re.M)))


def growing(header):
    """Structs that say how much of them a program knows."""
    return re.findall(r"^typedef struct (\w+) \{\s*size_t struct_size;", code_of(header), re.M)


def compiled(header, folder):
    """A library with a pointer to each type and function of the header."""
    (folder / "distattn.h").write_text(header)
    lines = [f"{name}* type_{name};" for name in types(header)]
    lines += [f"__typeof__({name})* function_{name};" for name in functions(header)]
    (folder / "header.c").write_text('#include "distattn.h"\n' + "\n".join(lines) + "\n")
    status, output = output_of(os.environ.get("CC", "cc"), "-std=gnu99", "-g", "-shared", "-fPIC", "header.c", "-o",
                               "header.so", cwd=folder)
    if status != 0:
        sys.exit(f"the header does not compile:\n{output}")
    return folder / "header.so"


def recorded(header):
    """The header's ABI as text."""
    with tempfile.TemporaryDirectory() as folder:
        status, output = output_of("abidw", *WITHOUT_PLACES, "--no-comp-dir-path", "--no-elf-needed",
                                   compiled(header, pathlib.Path(folder)))
    if status != 0:
        sys.exit(f"abidw fails:\n{output}")
    return output


def known_part(record, fresh, growing_structs):
    """`fresh` without what programs that know `record` do not see: enumerators that came, and members that came at the
    end of structs that may grow, unless they lie where such a program's struct has its padding."""
    record, fresh = xml.fromstring(record), xml.fromstring(fresh)
    for old, new in pairs(record, fresh, "enum-decl"):
        names = {value.get("name") for value in old.iter("enumerator")}
        for value in new.findall("enumerator"):
            if value.get("name") not in names:
                new.remove(value)
    for old, new in pairs(record, fresh, "class-decl"):
        if old.get("name") not in growing_structs:
            continue
        added = new.findall("data-member")[len(old.findall("data-member")):]
        if added and all(int(member.get("layout-offset-in-bits")) >= int(old.get("size-in-bits")) for member in added):
            for member in added:
                new.remove(member)
            new.set("size-in-bits", old.get("size-in-bits"))
    return xml.tostring(fresh, encoding="unicode")


def pairs(record, fresh, tag):
    named = {element.get("name"): element for element in record.iter(tag) if element.find("*") is not None}
    return [(named[element.get("name")], element) for element in fresh.iter(tag) if element.get("name") in named]


def compared(record, fresh, *options):
    """What abidiff says, "" for nothing."""
    with tempfile.TemporaryDirectory() as folder:
        old, new = pathlib.Path(folder) / "record.xml", pathlib.Path(folder) / "header.xml"
        old.write_text(record)
        new.write_text(fresh)
        status, output = output_of("abidiff", *WITHOUT_PLACES, "--harmless", *options, old, new)
    return "" if status == 0 else output


def difference(record, header):
    """What changed for programs that were compiled against `record`."""
    return compared(record, known_part(record, recorded(header), growing(header)), "--no-added-syms")


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    RECORD.write_text(recorded(whole(HEADER)))
    sys.exit(0)

from house import BUILD, expect, run_well, skip  # pylint: disable=wrong-import-position

if platform.machine() != "x86_64":
    skip(f"the ABI is recorded for x86_64, and this is {platform.machine()}")
for tool in ("abidw", "abidiff"):
    if shutil.which(tool) is None:
        skip(f"{tool} is not installed (apt-get install abigail-tools)")


def check_the_check(header):
    """Changes of each kind are found, and additions that programs do not see are not."""
    record = recorded(header)
    for old, new, fits in (
        ("  const char* layout;", "  const char* layout; int64_t more; double other;", True),
        ("DISTATTN_FP16 }", "DISTATTN_FP16, DISTATTN_FP8 }", True),
        ("DISTATTN_API void", "DISTATTN_API void distattn_new(int number);\nDISTATTN_API void", True),
        ("  const char* layout;", "  int64_t more; const char* layout;", False),
        ("  int64_t memory_bytes;", "  double memory_bytes, more;", False),
        ("int32_t head_dim, value_dim", "int32_t value_dim, head_dim", False),
        ("  size_t bytes;", "  size_t bytes, more;", False),
        ("DISTATTN_PEER = 5", "DISTATTN_PEER = 6", False),
        ("const char* message);", "const void* message);", False),
        ("DISTATTN_API void distattn_text_free(char* text);", "", False),
    ):
        expect(old in header, f"the header holds no '{old}'")
        found = difference(record, header.replace(old, new, 1))
        expect((not found) == fits, f"'{new}' for '{old}': {found or 'nothing is found'}")


header = whole(HEADER)
names = functions(header)
expect(len(names) >= 26 and len(types(header)) >= 16, f"found {names} and {types(header)}")
check_the_check(header)
expect("NODELETE" in run_well("readelf", "--dynamic", BUILD / "lib/libdistattn.so"), "dlclose() would unload the library")
symbols = subprocess.run(["nm", "-D", "--defined-only", BUILD / "lib/libdistattn.so"], text=True, capture_output=True,
                         check=True).stdout.split()
expect(set(names) <= set(symbols), f"declared but not exported: {sorted(set(names) - set(symbols))}")
found = difference(RECORD.read_text(), header)
expect(not found, f"programs that were compiled before do not fit any more\n{found}\n"
       f"if that is wanted: python3 tests/house/c_abi.py accept {BUILD.name}")
grown = compared(RECORD.read_text(), recorded(header))
print(f"{len(names)} functions, {len(types(header))} types" +
      (f"; it grew, and fits: python3 tests/house/c_abi.py accept {BUILD.name}" if grown else ""))
