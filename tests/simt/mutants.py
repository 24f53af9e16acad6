"""Faults put into copies of the CUDA kernels, one at a time: the tests on the emulator must notice each of them.

The mutated source is compiled and linked in front of the library that has the right one. First with few instantiations
and the tests of all masks, which notice most; what these do not notice is compiled whole and meets all tests.
"""

import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import time

from general_mutant_list import GENERAL_MUTANTS
from hopper_mutant_list import HOPPER_MUTANTS
from mutant_list import MUTANTS

KERNELS = "kernels/cuda"

NO_FAULT = "no fault"

AMPERE = ["ampere/attend.cu", "ampere/query_gradient.cu", "ampere/key_gradients.cu"]
KEY_BLOCKS = ["hopper/gradients.cu", "hopper/wide_gradients.cu"]
GENERAL = ["ampere/general.cu", "hopper/general.cu"]
HOPPER = ["hopper/attend.cu", "hopper/query_gradient.cu", *KEY_BLOCKS]

# Which source files have to be compiled again for a header, and the test that looks.
SOURCES = {
    "ampere/attend.cuh": ["ampere/attend.cu", "ampere/general.cu"],
    "hopper/attend.cuh": ["hopper/attend.cu", "hopper/general.cu"],
    "hopper/gradients.cuh": ["hopper/gradients.cu"],
    "hopper/wide_gradients.cuh": ["hopper/wide_gradients.cu", "hopper/general.cu"],
    "hopper/key_blocks.cuh": [*KEY_BLOCKS, "hopper/general.cu"],
    "hopper/query_addition.cuh": KEY_BLOCKS,
    "hopper/query_gradient.cuh": ["hopper/query_gradient.cu"],
    "hopper/tiles.cuh": HOPPER,
    "softmax_rows.cuh": ["ampere/attend.cu", "ampere/wide.cu", "hopper/attend.cu", *GENERAL],
    "ampere/query_gradient.cuh": ["ampere/query_gradient.cu", "ampere/general.cu"],
    "ampere/key_gradients.cuh": ["ampere/key_gradients.cu", "ampere/general.cu"],
    "ampere/key_stage.cuh": ["ampere/attend.cu", "ampere/query_gradient.cu"],
    "fragments.cuh": AMPERE,
    "query_rows.cuh": ["ampere/query_gradient.cu", "ampere/wide.cu", "hopper/query_gradient.cu"],
    "column_part.cuh": ["ampere/wide.cu"],
    "rows.cuh": [*AMPERE, *HOPPER],
    "tile_masks.cuh": [*AMPERE, *HOPPER],
    "block_place.cuh": [*AMPERE, *HOPPER, "plain.cu"],
    "work.hpp": [*AMPERE, *HOPPER, "plain.cu"],
    "scores.cuh": [*AMPERE, *HOPPER, "plain.cu"],
    "statistics.cuh": [*AMPERE, *HOPPER, "plain.cu"],
    "general_scores.cuh": [*GENERAL, "plain.cu"],
    "tile_terms.cuh": GENERAL,
    "plain.cuh": ["plain.cu"],
    "elementwise.cuh": ["elementwise.cu"],
}


def controls(entries):
    """One for each set of sources that is compiled again: must pass, or what entries meet would say nothing of them."""
    files = {tuple(SOURCES[file]): file for _, file, *_ in entries}
    return [(f"{NO_FAULT} in {file}", file, "#pragma once", "#pragma once") for file in files.values()]


def narrowest(entries):
    """Those of a list of instantiations that have the narrowest heads."""
    for width in (64, 128, 192):
        if some := re.findall(rf"\w+<\w+, {width}\b[^>]*>\(\)", entries):
            return ", ".join(some)
    return entries


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--texts-only", action="store_true", help="whether what mutants replace is still there")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--link", nargs="+", default=[])
    parser.add_argument("--attention", nargs="+", default=[])
    parser.add_argument("--elementwise", nargs="+", default=[])
    return parser.parse_args()


class Mutant:
    def __init__(self, options, number, entry):
        self.options = options
        self.what, self.file, self.text, self.replacement = entry
        self.source = pathlib.Path(options.source)
        self.folder = pathlib.Path(options.folder) / f"mutant{number}"

    def original(self):
        return (self.source / KERNELS / self.file).read_text()

    def misplaced(self):
        """Why the fault has no place; None if it has one."""
        count = self.original().count(self.text)
        return None if count == 1 else f"{self.what}: its text stands {count} times in {self.file}"

    def run(self):
        """A line for the reader, and whether the tests noticed."""
        began = time.time()
        if misplaced := self.misplaced():
            return misplaced, None
        original = self.original()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / KERNELS / self.file).parent.mkdir(parents=True)
        (self.folder / KERNELS / self.file).write_text(original.replace(self.text, self.replacement))
        try:
            why = self.fault_found()
        except subprocess.CalledProcessError as error:
            return f"{self.what}: does not compile\n{error.stdout}", None
        shutil.rmtree(self.folder)
        outcome = "SURVIVED" if why is None else "noticed "
        return f"{outcome} {time.time() - began:5.1f} s  {self.what}: {why}", why is not None

    def fault_found(self):
        """What a test says about the fault; None if all pass."""
        if self.file == "elementwise.cuh":
            return self.test(self.build(self.options.elementwise, False))
        return (self.test(self.build(self.options.attention, True), self.masks())
                or self.test(self.build(self.options.attention, False)))

    def masks(self):
        """The tests that kernels of one width suffice for."""
        everything = "with all that scores may have"
        if self.file == "column_part.cuh":
            return "latents of MLA*"
        if "wide" in self.file:
            return f"wide heads on Hopper,every mask on Hopper {everything}"
        sources = set(SOURCES[self.file])
        tests = [f"every mask {everything}"] if sources & {"ampere/general.cu", "plain.cu"} else []
        if "hopper/general.cu" in sources:
            tests += [f"every mask on Hopper {everything}"]
        if self.file in ("general_scores.cuh", "tile_terms.cuh"):
            return ",".join(tests)
        if sources - {*HOPPER, *GENERAL}:
            tests += ["every mask"]
        if sources & set(HOPPER):
            tests += ["every mask on Hopper", "few thread blocks on Hopper", "query heads that share a block on Hopper"]
        return ",".join([*tests, "[scores]"])

    def test(self, *command):
        done = subprocess.run([*command, "--abort"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=900)
        if done.returncode == 0:
            return None
        for pattern in (r"block \(.*(\n.*)?", r".* < \d.*", r"deadlock.*", r"(CHECK|REQUIRE)\(.*"):
            if words := re.search(pattern, done.stdout):
                return " ".join(words.group(0).split())[:100]
        return f"exit {done.returncode}"

    def build(self, test_objects, few_instantiations):
        includes = [f"-I{folder}" for folder in (self.folder, self.source, self.source / "tests",
                                                 self.source / "core/include")]
        objects = []
        for name in SOURCES[self.file]:
            text = (self.source / KERNELS / name).read_text()
            if few_instantiations:
                text = re.sub(r"return \{(\w+<\w+, \d+.*?)\};", lambda all: f"return {{{narrowest(all[1])}}};", text,
                              flags=re.S)
            source, compiled = self.folder / f"{name}.cpp", self.folder / f"{name}.o"
            source.parent.mkdir(exist_ok=True)
            source.write_text(text)
            self.call("-std=c++20", "-O1", "-w", *includes, "-c", source, "-o", compiled)
            objects.append(compiled)
        program = self.folder / "test"
        self.call(*objects, *test_objects, *self.options.link, "-pthread", "-o", program)
        return program

    def call(self, *arguments):
        subprocess.run([self.options.compiler, *map(str, arguments)], check=True, text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)


def main():
    options = parse()
    faults = [entry for entry in (*MUTANTS, *HOPPER_MUTANTS, *GENERAL_MUTANTS) if options.only in entry[0]]
    chosen = [*controls(faults), *faults]
    mutants = [Mutant(options, number, entry) for number, entry in enumerate(chosen)]
    if options.texts_only:
        misplaced = [line for mutant in mutants if (line := mutant.misplaced())]
        print(*misplaced, f"{len(faults)} mutants, {len(misplaced)} without a place", sep="\n")
        return bool(misplaced)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (line, noticed) in zip(mutants, pool.map(Mutant.run, mutants)):
            print(line, flush=True)
            bad += noticed is not (not mutant.what.startswith(NO_FAULT))
    print(f"{len(faults)} mutants, {bad} not as they should be")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
