"""distattn as sources in another project, by FetchContent and by add_subdirectory: nothing but the library."""

import pathlib
import tempfile

from house import BUILD, CMAKE, SOURCE, expect, run_well

# Stands before the compiler: what is the same with every option is of this build. What options change is compiled.
LAUNCHER = f"""#!/bin/sh
for word; do
  case $word in
    */distattn_kernels_vector.dir/* | */distattn_backends.dir/* | */distattn_registry.dir/*) ;;
    *distattn-build/*.o)
      built={BUILD}/${{word#*distattn-build/}}
      if [ -e "$built" ]; then exec cp "$built" "$word"; fi ;;
  esac
done
exec "$@"
"""


def guest(scratch):
    """Without Kokkos and CUDA, unoptimised: this is about being a guest."""
    launcher = scratch / "launcher"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    return ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DDISTATTN_WITH_KOKKOS=OFF",
            "-DDISTATTN_WITH_CUDA=OFF", "-DCMAKE_UNITY_BUILD=ON", f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}"]


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


def check_fetched(folder, options):
    run_well(CMAKE, "-S", SOURCE / "tests/consumer", "-B", folder, f"-DDISTATTN_SOURCE={SOURCE}", *options)
    check_targets(folder)
    for program in ("own_schedule", "threads_attention"):
        run_well(CMAKE, "--build", folder, "--target", program)
        print(run_well(folder / program), end="")


def check_added(folder, options):
    """The library is what check_fetched() built; here a user finds its headers."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(HOST)
    for _ in range(2):  # a cached variable shows when configuring again
        configured = run_well(CMAKE, "-S", folder, "-B", folder / "build", *options)
        expect("own: STATIC_LIBRARY" in configured, "a guest changes the kind of its host's libraries")
    check_targets(folder / "build")
    run_well(CMAKE, "--build", folder / "build", "--target", "user")


with tempfile.TemporaryDirectory() as name:
    scratch = pathlib.Path(name)
    check_fetched(scratch / "fetched", guest(scratch))
    check_added(scratch / "added", guest(scratch))
