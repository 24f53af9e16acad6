"""How distributions build: without RPATHs, with standards, flags and caches of their own."""

import os
import pathlib
import re
import shutil
import tempfile

from house import BUILD, CMAKE, SOURCE, expect, run, run_well

os.environ.pop("CMAKE_CXX_COMPILER_LAUNCHER", None)  # a request, of whoever tests
QUICK = ("-G", "Ninja", "-DDISTATTN_WITH_CUDA=OFF", "-DDISTATTN_BUILD_TESTS=OFF")


def configured(folder, *options):
    return run_well(CMAKE, "-S", SOURCE, "-B", folder, *QUICK, *options)


def refused(folder, words, *options):
    done = run(CMAKE, "-S", SOURCE, "-B", folder, *QUICK, *options)
    said = re.sub(r"\s+", " ", done.stdout)
    expect(done.returncode != 0 and words in said, f"{options} is not refused with '{words}':\n{done.stdout}")


def commands(folder, target):
    return run_well("ninja", "-C", folder, "-t", "commands", target)


def the_command_runs_without_rpaths(scratch):
    """What the build runs of itself starts from binaries that do not say where the library lies."""
    if not list(BUILD.glob("lib/libdistattn.*")) or (BUILD / "lib/libdistattn.a").exists():
        return
    bare, planned = scratch / "bare", scratch / "planned"
    for name in ("bin/distattn", *(path.relative_to(BUILD) for path in BUILD.glob("lib/libdistattn.so*"))):
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(BUILD / name, bare / name, follow_symlinks=False)
    (scratch / "strip.cmake").write_text(f'file(RPATH_REMOVE FILE "{bare}/bin/distattn")\n')
    run_well(CMAKE, "-P", scratch / "strip.cmake")
    expect(run(bare / "bin/distattn", "--version").returncode != 0, "it starts without an RPATH: nothing is tested")
    for option in ("CMAKE_SKIP_RPATH", "CMAKE_SKIP_BUILD_RPATH"):
        configured(planned, f"-D{option}=ON")
        for document, holds in (("man/man1/distattn.1", ".TH"), ("bash-completion/completions/distattn", "complete")):
            written = bare / "share" / document
            written.parent.mkdir(parents=True, exist_ok=True)
            last = commands(planned, f"share/{document}").strip().splitlines()[-1]
            run_well("sh", "-c", last.replace(str(planned), str(bare)))
            expect(holds in written.read_text(), f"{document} was not written")
            written.unlink()


def standards_are_kept(scratch):
    for asked, used in (((), "20"), (("-DCMAKE_CXX_STANDARD=20",), "20"), (("-DCMAKE_CXX_STANDARD=23",), "2[3b]")):
        folder = scratch / f"standard-{len(asked)}-{used[:1]}{len(used)}"
        configured(folder, *asked)
        found = set(re.findall(r" -std=(\S+)", commands(folder, "distattn_core")))
        expect(found and all(re.fullmatch(rf"c\+\+{used}", each) for each in found), f"{asked} compiles with {found}")
    for old in ("98", "14", "17"):
        refused(scratch / "old", f"CMAKE_CXX_STANDARD={old} is too old (distattn is written in C++20)",
                f"-DCMAKE_CXX_STANDARD={old}")
    refused(scratch / "old-cuda", "CMAKE_CUDA_STANDARD=17 is too old", "-DCMAKE_CUDA_STANDARD=17")


def kernels_keep_their_standard(scratch):
    """CMake gives CUDA the standard of C++, which nvcc need not have: of the tests too, which are then turned off."""
    folder = scratch / "newer"
    options = ("-G", "Ninja", "-DCMAKE_CXX_STANDARD=23")
    output = run_well(CMAKE, "-S", SOURCE, "-B", folder, *options)
    found = {"cu": set(), "cpp": set()}
    for line in commands(folder, "all").splitlines():
        for language, of in ((" -x cu ", "cu"), (".cpp.o ", "cpp")):
            if language in line:
                found[of].update(re.findall(r" -std=(\S+)", line))
    with_cuda = {"c++20"} if "DISTATTN_WITH_CUDA=AUTO: ON" in output else set()
    expect(found["cu"] == with_cuda and found["cpp"] <= {"c++23", "c++2b"}, f"the standards {found} are used")
    for testing in ("OFF", "ON", "OFF"):
        run_well(CMAKE, "-S", SOURCE, "-B", folder, *options, f"-DBUILD_TESTING={testing}")
        tests = "test_core" in run_well("ninja", "-C", folder, "-t", "targets", "all")
        expect(tests == (testing == "ON"), f"BUILD_TESTING={testing}, and tests are built: {tests}")


def unsafe_mathematics_is_kept_out(scratch):
    configured(scratch / "fast", "-DCMAKE_CXX_FLAGS=-ffast-math")
    for line in commands(scratch / "fast", "all").splitlines():
        if "-ffast-math" in line:
            expect(line.rindex("-fno-fast-math") > line.rindex("-ffast-math"), f"-ffast-math holds in\n{line}")
    for flags in ("CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE"):
        refused(scratch / "fastest", "-Ofast is among the compiler's flags", "-DCMAKE_BUILD_TYPE=Release",
                f"-D{flags}=-Ofast")


def caches_are_asked_for(scratch):
    configured(scratch / "plain")
    expect("ccache" not in commands(scratch / "plain", "all"), "a compiler cache is used unasked")


def what_is_left_out_says_why(scratch):
    """As the quickstart does where no GPU is, for this processor alone."""
    folder = scratch / "left-out"
    output = run_well(CMAKE, "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DDISTATTN_BUILD_TESTS=OFF",
                      "-DDISTATTN_LEFT_OUT_CUDA=nobody asked", "-DDISTATTN_CPU_KERNELS=NATIVE")
    expect("DISTATTN_WITH_CUDA=AUTO: OFF nobody asked" in output, f"CUDA is not left out:\n{output}")
    compiled = commands(folder, "distattn")
    for kernels in ("vector_kernels.cpp", "absent_kernels.cpp"):
        expect(kernels in compiled, f"no instruction set has {kernels}")
    refused(scratch / "some", "DISTATTN_CPU_KERNELS=SOME is not an option", "-DDISTATTN_CPU_KERNELS=SOME")


with tempfile.TemporaryDirectory() as folder:
    for test in (the_command_runs_without_rpaths, standards_are_kept, kernels_keep_their_standard,
                 unsafe_mathematics_is_kept_out, caches_are_asked_for, what_is_left_out_says_why):
        test(pathlib.Path(folder))
