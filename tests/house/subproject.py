"""distattn as sources in another project, by FetchContent and by add_subdirectory: nothing but the library."""

import pathlib
import tempfile

from house import CMAKE, SOURCE, expect, run_well

# Without Kokkos and CUDA, unoptimised: this is about being a guest, and compiles the library once more.
GUEST = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DDISTATTN_WITH_KOKKOS=OFF",
         "-DDISTATTN_WITH_CUDA=OFF", "-DCMAKE_UNITY_BUILD=ON"]

HOST = f"""cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES C CXX)
find_package(fmt REQUIRED)
set(CMAKE_DISABLE_FIND_PACKAGE_fmt ON)  # as where fmt is a folder of the host's
add_subdirectory("{SOURCE}" distattn)
add_library(user OBJECT "{SOURCE}/tests/consumer/threads_attention.c")
target_link_libraries(user PRIVATE distattn::distattn)
add_library(own "{SOURCE}/tests/consumer/threads_attention.c")
get_target_property(type own TYPE)
message(STATUS "own: ${{type}}")
"""


def check_targets(folder):
    """A guest brings no command, no tests and no installation."""
    targets = run_well(CMAKE, "--build", folder, "--target", "help")
    for guest in ("distattn_cli", "test_", "/install: "):
        own = [line for line in targets.splitlines() if guest in line and "distattn" in line]
        expect(not own, f"a subproject brings {own}")


def check_fetched(folder):
    run_well(CMAKE, "-S", SOURCE / "tests/consumer", "-B", folder, f"-DDISTATTN_SOURCE={SOURCE}", *GUEST)
    check_targets(folder)
    for program in ("own_schedule", "threads_attention"):
        run_well(CMAKE, "--build", folder, "--target", program)
        print(run_well(folder / program), end="")


def check_added(folder):
    """The library is what check_fetched() built; here a user finds its headers."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(HOST)
    for _ in range(2):  # a cached variable shows when configuring again
        configured = run_well(CMAKE, "-S", folder, "-B", folder / "build", *GUEST)
        expect("own: STATIC_LIBRARY" in configured, "a guest changes the kind of its host's libraries")
    check_targets(folder / "build")
    run_well(CMAKE, "--build", folder / "build", "--target", "user")


with tempfile.TemporaryDirectory() as scratch:
    check_fetched(pathlib.Path(scratch) / "fetched")
    check_added(pathlib.Path(scratch) / "added")
