"""The example page of docs/pages.md is what its command writes today.

After a wanted change of pages, schedules or the simulation: example_page.py accept BUILD_FOLDER, and look at the page.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def written(build):
    """The name of the example, and what the command that the document gives writes."""
    [command] = re.findall(r"^build/bin/distattn (.* --html \S+)$", (DOCS / "pages.md").read_text().replace("\\\n", ""), re.M)
    arguments = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build / "bin/distattn", *arguments, "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return arguments[-1], (pathlib.Path(folder) / arguments[-1]).read_text(encoding="utf-8")


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    name, text = written(pathlib.Path(sys.argv[2]).resolve())
    (DOCS / name).write_text(text, encoding="utf-8")
    sys.exit(0)

from house import BUILD, expect  # pylint: disable=wrong-import-position

name, text = written(BUILD)
expect((DOCS / name).exists() and (DOCS / name).read_text(encoding="utf-8") == text,
       f"docs/{name} is not what the command of docs/pages.md writes: python3 tests/house/example_page.py accept {BUILD.name}")
expect(len(text) < 1_000_000, f"docs/{name} is large for an example: {len(text)} characters")
print(f"{len(text)} characters")
