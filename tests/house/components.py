"""find_package(distattn COMPONENTS …): what is missing is named, with the reason, next to what there is."""

import pathlib
import re
import tempfile

from house import BUILD, CMAKE, expect, run, run_well

PROJECT = """cmake_minimum_required(VERSION {version})
project(user LANGUAGES CXX)
find_package(distattn 0.1 CONFIG {wish})
message(STATUS "found: ${{distattn_FOUND}}, cli: ${{distattn_cli_FOUND}}, spiral: ${{distattn_spiral_FOUND}}")
if(TARGET distattn::distattn)
  message(STATUS "there is a target")
endif()
"""


def configured(prefix, wish, version="3.25"):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "CMakeLists.txt").write_text(PROJECT.format(wish=wish, version=version))
        done = run(CMAKE, "-S", folder, "-B", f"{folder}/build", "-G", "Ninja", "-Wno-deprecated",
                   f"-DCMAKE_PREFIX_PATH={prefix}")
    return done.returncode, re.sub(r"\s+", " ", done.stdout)


def expect_found(prefix, wish, **options):
    code, output = configured(prefix, wish, **options)
    expect(code == 0 and "found: 1" in output and "there is a target" in output, f"{wish} is not found\n{output}")
    return output


def expect_missing(prefix, wish, *reasons, required=True):
    code, output = configured(prefix, wish)
    expect((code != 0) == required, f"exit {code} where {wish}\n{output}")
    if required:
        for reason in (*reasons, *present):
            expect(reason in output, f"'{reason}' is not said of {wish}\n{output}")
    else:
        expect("found: 0" in output and "there is a target" not in output, f"{wish} leaves something\n{output}")


def absent():
    """name -> why it is not built, of one backend at least: `spiral`'s reason if all are built."""
    lines = re.findall(r'DISTATTN_ABSENT\(([^,]+), \w+, "(.*)"\)', (BUILD / "backends/backends.def").read_text())
    return dict(lines)


with tempfile.TemporaryDirectory() as scratch:
    for part in ("runtime", "devel"):
        run_well(CMAKE, "--install", BUILD, "--prefix", scratch, "--component", part)
    config = next(pathlib.Path(scratch).rglob("distattnConfig.cmake")).read_text()
    present = re.search(r"set\(_distattn_components (.*)\)", config)[1].split(";")
    expect({"inproc", "reference"} <= set(present), f"the package has {present}")
    expect_found(scratch, "REQUIRED")
    expect_found(scratch, f"REQUIRED COMPONENTS {' '.join(present)}")
    expect_found(scratch, "REQUIRED COMPONENTS inproc", version="3.5")  # with the policies of an old project
    expect_found(scratch, "REQUIRED COMPONENTS inproc OPTIONAL_COMPONENTS spiral cli")
    missing = "component spiral is missing (distattn has no component of that name)"
    expect_missing(scratch, "REQUIRED COMPONENTS inproc spiral", missing)
    expect_missing(scratch, "REQUIRED COMPONENTS spiral helix", missing, "component helix is missing")
    expect_missing(scratch, "REQUIRED COMPONENTS cli", "component cli is missing (the command is not installed here)")
    expect_missing(scratch, "COMPONENTS spiral", required=False)
    expect_missing(scratch, "QUIET COMPONENTS spiral", required=False)
    for name, why in absent().items():
        expect_missing(scratch, f"REQUIRED COMPONENTS {name}", f"component {name} is missing ({why})")
    command = pathlib.Path(scratch) / "bin/distattn"
    command.parent.mkdir(exist_ok=True)
    command.touch()
    expect("cli: TRUE" in expect_found(scratch, "REQUIRED COMPONENTS cli"), "the command is not found")
print(f"{len(present)} components, {len(absent())} absent")
