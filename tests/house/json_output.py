"""docs/json.md against what the commands print: its fields are those of the objects, its exit codes the manual's.

Its tables are what test_json_fields prints. After a wanted change of fields or of what is said about them:
json_output.py accept BUILD_FOLDER, and read the difference.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/json.md"


def written(build):
    """docs/json.md with today's tables."""
    printed = subprocess.run([build / "bin/test_json_fields"], check=True, text=True, capture_output=True).stdout
    tables = dict(re.findall(r"^# (.*)\n((?:\|.*\n)+)", printed, re.M))
    text, count = re.subn(r"(<!-- fields: ([a-z ]+) -->\n).*?(<!-- end -->)",
                          lambda match: f"{match[1]}\n{tables.pop(match[2])}\n{match[3]}", DOCUMENT.read_text(), flags=re.S)
    if tables or count == 0:
        sys.exit(f"docs/json.md has no place for the tables of {', '.join(tables)}")
    return text


if len(sys.argv) == 3 and sys.argv[1] == "accept":
    DOCUMENT.write_text(written(pathlib.Path(sys.argv[2]).resolve()))
    sys.exit(0)

from house import BUILD, SOURCE, expect, run_well  # pylint: disable=wrong-import-position

BENCH_ADDS_TO = "build/bin/distattn run"  # the command whose fields bench's rows have too


def fields_of(value, name=""):
    """Fields as the document names them: "error.o", "backends[]" and, of each that it has, "….name"."""
    found = set()
    for key, inner in value.items():
        found.add(name + key)
        if isinstance(inner, dict):
            found |= fields_of(inner, name + key + ".")
        if isinstance(inner, list):
            found.remove(name + key)
            found.add(name + key + "[]")
            for each in inner:
                found |= fields_of(each, "….")
    return found


# Of results that a command prints only when they are asked for.
ON_REQUEST = set(re.findall(r"^\| `(.*?)` \|.*\| Only with `?--", DOCUMENT.read_text(), re.M))


def documented():
    """command -> the fields of the table below it."""
    text = (SOURCE / "docs/json.md").read_text()
    tables = {}
    for command, below in re.findall(r"^```sh\n(.*?)\n```\n(.*?)(?=^```|^## |\Z)", text, re.M | re.S):
        rows = re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", below, re.M)
        tables[command] = {field for row in rows for field in re.findall(r"`(.*?)`", row)}
    return tables


expect(DOCUMENT.read_text() == written(BUILD),
       f"the tables of docs/json.md are not those of the rows: python3 tests/house/json_output.py accept {BUILD.name}")
tables = documented()
expect(len(tables) >= 9, f"docs/json.md has {len(tables)} tables")
run_fields = next(fields for command, fields in tables.items() if command.startswith(BENCH_ADDS_TO))
for command, fields in tables.items():
    line = shlex.split(command.replace("build/bin/distattn", str(BUILD / "bin/distattn"), 1))
    printed = json.loads(run_well(*line, "--quiet"))
    rows = printed if isinstance(printed, list) else [printed]
    expect(rows, f"{command} prints no row")
    if " bench --schedule" in command:
        fields = fields | {field for field in run_fields if not field.startswith("backward.")}
    for row in rows:
        expect(row.pop("schema_version") == 1, f"{command} prints another schema_version")
        found = fields_of(row)
        due = {field for field in fields if not ("." in field and row.get(field.split(".")[0], "") is None)}
        due -= ON_REQUEST - found
        expect(found == due, f"{command} prints {sorted(found - due)} that docs/json.md lacks, "
                             f"docs/json.md has {sorted(due - found)} that it does not print")

codes = re.findall(r"^\| (\d+) \| (.*) \|$", (SOURCE / "docs/json.md").read_text(), re.M)
manual = re.findall(r"^\.TP\n(\d+)\n(.*)$", run_well(BUILD / "bin/distattn", "manual"), re.M)
expect(codes == manual, f"docs/json.md has the exit codes {codes}, the manual {manual}")
print(f"{len(tables)} commands, {len(codes)} exit codes")
