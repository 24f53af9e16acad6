"""tests/consumer, somebody else's project, against a distattn that was installed and moved.

By find_package and by pkg-config, in C++ and in C, between threads and (where there is an MPI) between processes.
"""

import json
import os
import pathlib
import shutil
import tempfile

from house import BUILD, CMAKE, SOURCE, expect, run_well

CONSUMER = SOURCE / "tests/consumer"
PROGRAMS = ("sharded_attention", "using_cpp", "growing_cache", "queued_layers", "own_schedule", "own_transport",
            "threads_attention", "using_c", "queued_attention", "serving", "launched_attention")
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4")
# Open MPI refuses root otherwise; a container often has nobody else.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

def static_build():
    """A build of the same sources as a static library; the archive itself is made by the target distattn_archive."""
    folder = BUILD / "consumer-static"
    run_well(CMAKE, "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF",
             "-DDISTATTN_BUILD_TESTS=OFF", "-DDISTATTN_BUILD_CLI=OFF")
    return folder


def run_programs(folder, programs):
    for program in programs:
        print(run_well(folder / program), end="")


def check_find_package(kind, prefix, folder):
    # Whoever links the shared library needs none of the packages behind it.
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in ("Kokkos", "fmt", "nlohmann_json", "ucx",
                                                                              "CUDAToolkit")]
    run_well(CMAKE, "-S", CONSUMER, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
             "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Werror",
             "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wshadow -Wpedantic -Werror",
             *(hidden if kind == "shared" else []))
    run_well(CMAKE, "--build", folder)
    run_programs(folder, PROGRAMS)
    if (folder / "mpi_attention").exists():
        print(run_well(*MPIRUN, folder / "mpi_attention", env=ENVIRONMENT), end="")
    check_launched(prefix, folder / "launched_attention")


def check_launched(prefix, program):
    """Ranks of a launcher find each other by the library's own bootstrap, where this build has what that needs."""
    command = prefix / "bin/distattn"
    if not command.exists() or shutil.which("mpirun") is None:
        return
    usable = {info["name"] for kind in ("bootstraps", "transports") for info in
              json.loads(run_well(command, "info", "--json"))[kind] if info["built"]}
    if {"pmix", "ucx"} <= usable:
        output = run_well(*MPIRUN, program, env=ENVIRONMENT)
        expect(all(f"rank {rank} of 4" in output for rank in range(4)), f"the launcher's ranks do not meet:\n{output}")


def check_pkg_config(kind, prefix, folder):
    folder.mkdir()
    config = next(prefix.rglob("distattn.pc")).parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(config)}
    flags = run_well("pkg-config", "--cflags", "--libs", *(["--static"] if kind == "static" else []), "distattn",
                     env=environment).split()
    rpath = f"-Wl,-rpath,{config.parent}"
    compilers = {".cpp": [os.environ["CXX"], "-std=c++20"], ".c": [os.environ["CC"], "-std=c11"]}
    for source in ("sharded_attention.cpp", "threads_attention.c"):
        compiler = compilers[pathlib.Path(source).suffix]
        run_well(*compiler, CONSUMER / source, *flags, "-lm", rpath, "-o", folder / pathlib.Path(source).stem)
    run_programs(folder, ("sharded_attention", "threads_attention"))


def check_command(prefix):
    """The command of a moved prefix runs, and finds its own library."""
    command = prefix / "bin/distattn"
    expect("distattn" in run_well(command, "--version"), "the moved command does not say its version")
    libraries = run_well("ldd", command)
    expect(str(prefix) in libraries and str(BUILD) not in libraries, f"the moved command loads\n{libraries}")
    run_well(command, "run", "--random", "--seq", "256", "--heads", "2", "--head-dim", "32", "--ranks", "2", "--check")


def check_installed(prefix, first):
    """Nothing that consumers read names a folder of the build or the prefix it was installed to."""
    for file in prefix.rglob("*"):
        if file.suffix in (".cmake", ".pc"):
            text = file.read_text()
            for folder in (SOURCE, BUILD, first):
                expect(str(folder) not in text, f"{file.name} names {folder}")


def check(kind):
    """All of it, with a "shared" or a "static" library."""
    with tempfile.TemporaryDirectory() as scratch:
        first, moved = pathlib.Path(scratch) / "first", pathlib.Path(scratch) / "moved"
        run_well(CMAKE, "--install", BUILD if kind == "shared" else static_build(), "--prefix", first)
        shutil.move(first, moved)
        check_installed(moved, first)
        if (moved / "bin/distattn").exists():
            check_command(moved)
        check_find_package(kind, moved, pathlib.Path(scratch) / "package")
        check_pkg_config(kind, moved, pathlib.Path(scratch) / "pkgconfig")
