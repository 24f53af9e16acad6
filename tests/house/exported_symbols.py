"""What libdistattn.so exports is the checked-in list: nothing leaks, and nothing is dropped unnoticed.

After a wanted change of the interface: exported_symbols.py accept BUILD_FOLDER, and read the difference.
"""

import pathlib
import subprocess
import sys

LIST = pathlib.Path(__file__).with_name("exported_symbols.txt")


def exported(library):
    """Functions and data with a place of their own, as C++ writes them.

    Left out is what depends on the compiler's mood: copies of templates and inlines, and members of the State structs
    behind the handles, which only the library itself can name.
    """
    lines = subprocess.run(["nm", "-DC", "--defined-only", library], text=True, capture_output=True, check=True).stdout
    fields = (line.split(" ", 2) for line in lines.splitlines())
    return sorted({name for _, kind, name in fields if kind in "TDBR" and "::State::" not in name})


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    LIST.write_text("\n".join(exported(pathlib.Path(sys.argv[2]) / "lib/libdistattn.so")) + "\n")
    sys.exit(0)

from house import BUILD, expect  # pylint: disable=wrong-import-position

listed, found = set(LIST.read_text().splitlines()), set(exported(BUILD / "lib/libdistattn.so"))
expect(all("distattn" in symbol for symbol in found), "symbols that are not distattn's are exported")
expect(found == listed, "exported but not listed:\n  " + "\n  ".join(sorted(found - listed)) +
       "\nlisted but not exported:\n  " + "\n  ".join(sorted(listed - found)) +
       f"\nif that is wanted: python3 tests/house/exported_symbols.py accept {BUILD.name}")
print(f"{len(found)} symbols")
