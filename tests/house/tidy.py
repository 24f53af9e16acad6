"""The house is in order: who includes whom, file and function length, dead files, words that do not belong."""

import os
import pathlib
import re
import sys

from house import CODE, SOURCE, expect, fail

ROOMS = ("core", "kernels", "backends", "cli", "tests", "cmake", "packaging", "docs")
SCRIPTS = {".css", ".js"}  # of pages
TEXT = CODE | SCRIPTS | {".py", ".cmake", ".sh", ".md", ".txt", ".json", ".toml"}

MOST_LINES = 400
MOST_FUNCTION_LINES = 70
MOST_COLUMNS = 120
SPECIFICATION = "spec" + " §"  # not a word of this file
LONG_FILES = {"tests/model/distmodel.py": "the executable model, kept as it was proved"}

# A room's files may include what matches one of its patterns (project headers in quotes as seen from the root, or
# from their own folder); the longest matching folder decides.
INCLUDES = {
    "core/include/distattn": [r"distattn/"],
    "core/c_api": [r"distattn/", r"[a-z0-9_]+\.hpp$"],
    "core/src": [r"distattn/", r"core/src/", r"commit\.hpp$"],
    "kernels": [r"distattn/(band|error|features|float16|host_resources|index|partial|scores|tensor|types)\.hpp$", r"kernels/[a-z0-9_]+\.hpp$"],
    "kernels/portable": [r"kernels/vector/[a-z_]+\.hpp$"],  # which it launches, and whose vectors its hosts compute with
    "kernels/cuda": [r"kernels/cuda/[a-z_]+\.(cuh|hpp)$",  # not what is in its folders: generations know nothing of each other
                     r"simt/(hopper_)?primitives\.hpp$"],  # without a CUDA compiler the emulator stands in for the device
    "backends": [r"distattn/", r"kernels/(arguments|kernels|team)\.hpp$",
                 r"backends/[a-z0-9_]+\.hpp$", r"backends\.def$"],
    "backends/host": [r"kernels/(pages.hpp|reference/)"],  # the host device with the reference kernels
    "backends/cpu": [r"backends/host/", r"kernels/vector/"],
    "backends/kokkos": [r"backends/(host|kokkos)/", r"kernels/(vector|portable)/"],
    "backends/kokkos/spaces": [r"backends/(host|kokkos|streams)/", r"kernels/portable/"],
    "backends/torchrun": [r"backends/launch/"],  # bootstraps meet as all processes do
    "backends/slurm": [r"backends/launch/"],
    "backends/pmix": [r"backends/(launch|slurm)/"],  # srun is a server of PMIx too
    "backends/cuda": [r"backends/streams/", r"kernels/cuda/"],  # devices with memory of their own share their streams
    "backends/nccl": [r"backends/(cuda|streams)/"],  # the edges across backends: its driver,
    "backends/cudnn": [r"backends/(cuda|streams)/", r"kernels/cuda/"],  # and what it computes with
    "cli": [r"distattn/", r"cli/", r"core/src/(fields|format)\.hpp$"],
    "cli/tools": [r"core/src/json_fields\.hpp$", r"core/src/problem/splitmix\.hpp$", r"core/src/io/(open_file|pipe_end)\.hpp$",
                  r"kernels/(reference/oracle|peak/peak)\.hpp$"],
    "cli/rows": [r"core/src/planner/plan_fields\.hpp$"],  # the rows that the C API has too
    "cli/step": [r"kernels/dense/"],                      # what surrounds the attention in a training step
    "tests": [r"."],
}

# The floors of core/src, each using those before it; the files next to them serve all.
CORE_FLOORS = ("problem", "schedule", "tables", "lower", "proof", "io", "prediction", "planner", "run")

# The floors of cli; of those above it step has nothing but how sizes are written.
CLI_FLOORS = ("tools", "step", "terminal", "options", "rows", "run", "plan", "validate", "bench", "help")

# Where a public header's body lies.
HOME = {body.stem: body.parent.name for body in (SOURCE / "core/src").glob("*/*.cpp")} | {"files": "io"}

# Packages stay in the rooms that are named after them.
PACKAGES = {
    r"Kokkos": ("kernels/portable", "tests"),
    r"cu(da|blas|rand|pti)": ("kernels/cuda", "backends/cuda", "backends/nccl", "tests"),
    r"nccl": ("backends/nccl", "tests"),
    r"uc[pst]/": ("backends/ucx", "tests"),
    r"(pmix|mpi)\b": ("backends/pmix", "tests"),
    r"(cblas|openblas)": ("kernels/dense", "tests"),
    r"(CLI|toml\+\+)/": ("cli", "tests"),
    r"(fmt|nlohmann)/": ("core/src", "backends", "cli", "tests"),
}

# Backends of somebody else's make: those that the registry lists, but for the project's own.
VENDORS = sorted({word for file in (SOURCE / "backends").glob("*/CMakeLists.txt")
                  for name in re.findall(r"^ *distattn_backend\(([a-z+]+) ", file.read_text(), re.M)
                  for word in name.split("+")} - {"cpu", "file", "inproc", "own", "reference"})

WORDS = [
    (r"\b(TO" r"DO|FIX" r"ME|HA" r"CK|XX" r"X)\b", "do it, or leave it out and say so"),
    (r"(?<![\w.$}])/(home|work|root|Users|mnt)/\w", "no path of one machine"),
    (r"//+\s*[-=*#]{4,}", "no separator lines"),
    (r"\busing namespace std\b", "name what is used"),
    (r"#\s*if.*(DISTATTN_(WITH|HAVE)|KOKKOS_ENABLE|NCCL|UCX|PMIX)", "what is built is the registry's business"),
]


def folder_rules(path, table):
    """The entries of `table` for the folders that hold `path`, nearest first."""
    folders = [parent.as_posix() for parent in pathlib.PurePosixPath(path).parents]
    return [(folder, table[folder]) for folder in folders if folder in table]


def include_complaints(path, text):
    for quote, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.M):
        if quote == "<":
            for package, rooms in PACKAGES.items():
                if re.match(package, name) and not path.startswith(tuple(room + "/" for room in rooms)):
                    yield f"includes <{name}>, which only {', '.join(rooms)} may"
            continue
        rules = folder_rules(path, INCLUDES)
        own = pathlib.PurePosixPath(path).parent.as_posix() + "/"
        if rules and not name.startswith(own) and not any(re.match(p, name) for _, patterns in rules for p in patterns):
            yield f'includes "{name}", which {rules[0][0]} may not'


def floor_complaints(path, text):
    """Core's floors use only those below them; a header stands on the floor of its body."""

    def floor_of(name):
        inside = re.match(r"core/src/([a-z_]+)/", name)
        home = inside.group(1) if inside else HOME.get(pathlib.PurePosixPath(name).stem, "")
        return CORE_FLOORS.index(home) if home in CORE_FLOORS else -1

    if not path.startswith(("core/src/", "core/include/")):
        return
    own = floor_of(path)
    if own == -1:
        return
    for name in re.findall(r'^#include "((?:core/src|distattn)/[^"]+)"', text, re.M):
        if floor_of(name) > own:
            yield f'includes "{name}" from a floor above its own ({", ".join(CORE_FLOORS)})'


def cli_floor_complaints(path, text):
    """Floors of cli use only those below them; main and step_command use all, command.hpp and exit_code.hpp serve all."""
    own = path.split("/")[1] if path.startswith("cli/") else ""
    if own not in CLI_FLOORS:
        return
    for name in re.findall(r'^#include "cli/([a-z_]+/[^"]+)"', text, re.M):
        if CLI_FLOORS.index(name.split("/")[0]) > CLI_FLOORS.index(own) and name != "options/values.hpp":
            yield f'includes "cli/{name}" from a floor above its own ({", ".join(CLI_FLOORS)})'


def vendor_complaints(path, text):
    """Core names no vendor, nor does a header that several backends share; where memory lies (MemorySpace) they must
    say."""
    if pathlib.PurePosixPath(path).suffix not in CODE:
        return
    code = re.sub(r"//.*", "", text)
    if path.startswith("core/"):
        for word in set(re.findall(r"kokkos|nccl|cudnn|\bucx|pmix|\bmpi\b|openblas", code, re.I)):
            yield f"names {word}; core names no vendor"
    if re.fullmatch(r"core/(include/distattn|src/.*)/[a-z_0-9]+\.hpp|(backends|kernels)/(launch/)?[a-z_0-9]+\.hpp", path):
        code = re.sub(r"MemorySpace::cuda|enum class MemorySpace .*|__CUDA(?:CC|_ARCH)__", "", code)
        for word in set(re.findall(rf"(?<![a-z])(?:{'|'.join(VENDORS)})", code, re.I)):
            yield f"names {word}, which is one backend's own; headers that all share name none"


def option_complaints(path, text):
    """A library's messages name things, not options of the command: callers in C++ have none."""
    if not path.startswith(("core/", "backends/", "kernels/")) or pathlib.PurePosixPath(path).suffix not in CODE:
        return
    for found in re.finditer(r'"[^"\n]*?(?:(\S+) |)(--[a-z][a-z-]*)[^"\n]*"', re.sub(r"//.*", "", text)):
        if found.group(1) not in ("bench", "run", "srun", "without"):  # somebody's command line, told whole
            yield f"names the option {found.group(2)} in a text of the library"


def word_complaints(path, text):
    if path == "tests/house/tidy.py":
        return
    for pattern, advice in WORDS:
        for found in re.finditer(pattern, text):
            yield f"line {text.count(chr(10), 0, found.start()) + 1}: '{found.group().strip()}' ({advice})"


def form_complaints(path, text):
    lines = text.split("\n")
    if path in LONG_FILES:
        return
    if pathlib.PurePosixPath(path).suffix in CODE | SCRIPTS | {".py", ".cmake", ".sh"}:
        if len(lines) > MOST_LINES:
            yield f"has {len(lines)} lines (at most {MOST_LINES}); split it by topic"
        for number, line in enumerate(lines, 1):
            if len(line) > MOST_COLUMNS and pathlib.PurePosixPath(path).suffix in CODE | SCRIPTS:
                yield f"line {number} has {len(line)} columns (at most {MOST_COLUMNS})"
            if line != line.rstrip() or "\t" in line:
                yield f"line {number} has a tab or trailing blanks"
    if text and not text.endswith("\n"):
        yield "does not end in a newline"
    if path.endswith((".hpp", ".cuh")) and not text.startswith("#pragma once\n"):
        yield "does not start with #pragma once"
    if path.startswith("core/include/") and path.endswith(".hpp") and not text.startswith("#pragma once\n///"):
        yield "does not say first what it is for"
    if SPECIFICATION in text:
        yield "refers to a specification that whoever reads it does not have (name docs/mathematics.md or a paper)"
    if path.startswith("core/include/") and path.endswith(".hpp") and (
            "#pragma GCC visibility push(default)\nnamespace distattn {" not in text):
        yield "does not make its namespace visible"


def function_complaints(path, text):
    if pathlib.PurePosixPath(path).suffix not in CODE or path.startswith("tests/"):
        return
    head = re.compile(r"^(\s*)(?!(?:if|for|while|switch|do|else|try|namespace|class|struct|enum|union|return)\b)\S.*\)"
                      r"(?: const| noexcept| override| final| requires.*| ->.*|)*(?: :.*)? \{$")
    start, indent = None, ""
    for number, line in enumerate(text.split("\n"), 1):
        if start is None and (found := head.match(line)) and len(found.group(1)) <= 2:
            start, indent = number, found.group(1)
        elif start is not None and line == indent + "}":
            if number - start + 1 > MOST_FUNCTION_LINES:
                yield f"line {start}: a function of {number - start + 1} lines (at most {MOST_FUNCTION_LINES})"
            start = None


CHECKS = (include_complaints, floor_complaints, cli_floor_complaints, vendor_complaints, option_complaints, word_complaints, form_complaints,
          function_complaints)


def complaints_about(path, text):
    return [f"{path}: {complaint}" for check in CHECKS for complaint in check(path, text)]


def dead_files(texts):
    """Sources that no CMakeLists.txt names and headers that nobody includes."""
    lists = " ".join(text for path, text in texts.items() if path.endswith(("CMakeLists.txt", ".cmake")))
    included = set()
    for path, text in texts.items():
        for name in re.findall(r'#\s*include\s*[<"]([^>"]+)', text):
            included.add(pathlib.PurePosixPath(name).name)
    for path in texts:
        name = pathlib.PurePosixPath(path).name
        if path.endswith((".cpp", ".cu", ".c")) and not re.search(rf"\b{re.escape(name)}", lists):
            yield f"{path}: is in no CMakeLists.txt"
        if path.endswith((".hpp", ".cuh", ".h")) and name not in included and not path.startswith("core/include/"):
            yield f"{path}: nobody includes it"


def odd_names(names):
    """Names that not every shell, archive and web page can hold: a program that opens freed memory makes such files."""
    for name in names:
        if not re.fullmatch(rb"[A-Za-z0-9._+-]+", name):
            yield f"{ascii(os.fsdecode(name))} is no name of a file of this project (plain ASCII, no blanks)"


def names_in_tree():
    """Whether git knows a file or not: what a test has just left behind is seen too."""
    source = os.fsencode(SOURCE)
    yield from os.listdir(source)
    for room in (*ROOMS, ".ci"):
        for _, folders, files in os.walk(os.path.join(source, room.encode())):
            folders[:] = [folder for folder in folders if folder not in (b"__pycache__", b"build")]
            yield from folders + files


def forwarding_complaints(text):
    """A transport over another one passes on every virtual function: most have a default, so that nothing else would
    say that one is forgotten."""
    bodies = {name: body for name, body in re.findall(r"^class (\w+)[^;{]*\{(.*?)^\};", text, re.M | re.S)}
    virtuals = re.findall(r"virtual [^;{~]*?(\w+)\(", bodies["Transport"])
    for name in virtuals:
        if not re.search(rf"\b{name}\([^;]*override", bodies["ForwardingTransport"]):
            yield f"core/include/distattn/engine.hpp: ForwardingTransport does not pass on {name}()"


def read_tree():
    texts = {}
    for room in ROOMS:
        for file in sorted((SOURCE / room).rglob("*")):
            path = file.relative_to(SOURCE)
            if file.is_file() and file.suffix in TEXT and "__pycache__" not in path.parts and "build" not in path.parts:
                texts[path.as_posix()] = file.read_text(encoding="utf-8")
    for file in sorted(SOURCE.glob("*.md")) + [SOURCE / "CMakeLists.txt"]:
        texts[file.name] = file.read_text(encoding="utf-8")
    return texts


def check_the_checks():
    """Each check finds what it is for."""
    body = "  x();\n" * 80
    for path, text, complaint in (
        ("core/include/distattn/a.hpp", '#pragma once\n/// A.\n#include <fmt/core.h>\n', "includes <fmt/core.h>"),
        ("core/include/distattn/a.hpp", '#pragma once\n#include <vector>\n', "what it is for"),
        ("core/include/distattn/a.hpp", "#pragma once\n/// A.\nnamespace distattn {\n", "visible"),
        ("core/include/distattn/a.hpp", f"#pragma once\n/// A ({SPECIFICATION}1).\n", "specification"),
        ("core/src/a.cpp", '#include "kernels/arguments.hpp"\n', "core/src may not"),
        ("core/src/lower/a.cpp", '#include "core/src/run/bindings.hpp"\n', "floor above"),
        ("core/src/problem/mask.cpp", '#include "distattn/simulate.hpp"\n', "floor above"),
        ("cli/options/a.cpp", '#include "cli/run/inputs.hpp"\n', "floor above"),
        ("cli/step/a.cpp", '#include "cli/options/app.hpp"\n', "floor above"),
        ("core/src/a.cpp", "int kokkos_threads = 0;\n", "names no vendor"),
        ("backends/ucx/a.cpp", 'fail("late) give a longer --timeout");\n', "names the option --timeout"),
        ("kernels/reference/a.cpp", '#include "distattn/schedule.hpp"\n', "may not"),
        ("kernels/cuda/a.cu", '#include "kernels/vector/a.hpp"\n', "may not"),
        ("backends/ucx/a.cpp", '#include "backends/streams/event.hpp"\n', "may not"),
        ("cli/a.cpp", '#include "backends/registration.hpp"\n', "may not"),
        ("cli/a.cpp", "#include <ucp/api/ucp.h>\n", "includes <ucp/api/ucp.h>"),
        ("cli/a.cpp", "// FIX" "ME later\n", "leave it out"),
        ("cli/a.cpp", '#ifdef DISTATTN_HAVE_X\n', "registry"),
        ("cli/a.cpp", "x = \"/home/me/x\";\n", "no path"),
        ("cli/a.cpp", "// -----------\n", "separator"),
        ("cli/a.cpp", "x();\n" * 500, "split it"),
        ("cli/a.cpp", "x" * 130 + "\n", "130 columns"),
        ("cli/a.cpp", "x(); \n", "trailing"),
        ("cli/a.cpp", "x();", "newline"),
        ("cli/a.hpp", "x();\n", "#pragma once"),
        ("cli/a.cpp", "int f() {\n" + body + "}\n", "a function of 82 lines"),
    ):
        expect(any(complaint in found for found in complaints_about(path, text)),
               f"nobody says '{complaint}' of {text!r}")
    sound = '#include "backends/streams/event.hpp"\n#include "distattn/engine.hpp"\n#include <nccl.h>\n'
    expect(not list(vendor_complaints("backends/a.hpp", "MemorySpace::cuda  // as CUDA has it\n")), "a memory space is refused")
    expect({"cuda", "cudnn", "kokkos", "nccl", "pmix", "slurm", "torchrun", "ucx"} == set(VENDORS), f"vendors: {VENDORS}")
    expect(complaints_about("backends/nccl/a.cpp", sound) == [], "the edge from nccl to events of streams is refused")
    dead = dead_files({"cli/a.cpp": "", "cli/a.hpp": "", "cli/CMakeLists.txt": "b.cpp"})
    expect(len(list(dead)) == 2, "dead files live")
    for odd in (b"\x10\xde\x61\xb3[U", b"\xc3\xa9.md", b"a b.md", b"a\n.md", b"-\x1b[31m"):
        expect(list(odd_names([b"a.md", b".ci", odd, b"A-b_1+2.py"])) != [], f"{odd!r} is a fine name")
    expect(not list(odd_names([b"a.md", b".ci", b"A-b_1+2.py"])), "plain names are odd")
    engine = ("class Transport {\n  virtual ~Transport() = default;\n  virtual void stop() = 0;\n"
              "  virtual void rest() {}\n};\n"
              "class ForwardingTransport : public Transport {\n  void stop() override { over_.stop(); }\n};\n")
    expect([complaint.split()[-1] for complaint in forwarding_complaints(engine)] == ["rest()"], "rest() is forgotten")


def main():
    check_the_checks()
    texts = read_tree()
    expect(len(texts) > 100, f"only {len(texts)} files found under {SOURCE}")
    found = [complaint for path, text in texts.items() for complaint in complaints_about(path, text)]
    found += dead_files(texts)
    found += odd_names(names_in_tree())
    found += forwarding_complaints(texts["core/include/distattn/engine.hpp"])
    for complaint in found:
        print(complaint)
    if found:
        fail(f"{len(found)} complaints about {len(texts)} files")
    print(f"{len(texts)} files in order")


if __name__ == "__main__":
    sys.exit(main())
