"""distattn fetched into another project: nothing but the library, and programs that use it."""

import pathlib
import shutil
import tempfile

from house import CMAKE, SOURCE, expect, run_well

with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    # Without Kokkos and CUDA, unoptimised: this is about being a guest, and compiles the library once more.
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    run_well(CMAKE, "-S", SOURCE / "tests/consumer", "-B", folder, "-G", "Ninja", f"-DDISTATTN_SOURCE={SOURCE}",
             "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DDISTATTN_WITH_KOKKOS=OFF",
             "-DDISTATTN_WITH_CUDA=OFF", *launcher)
    targets = run_well(CMAKE, "--build", folder, "--target", "help")
    for guest in ("distattn_cli", "test_", "/install: "):
        own = [line for line in targets.splitlines() if guest in line and "distattn" in line]
        expect(not own, f"a subproject brings {own}")
    run_well(CMAKE, "--build", folder, "--target", "own_schedule")
    print(run_well(folder / "own_schedule"), end="")
