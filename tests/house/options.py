"""DISTATTN_WITH_*: every outcome is printed, ON without its package names what to install, nonsense is refused."""

import os
import pathlib
import re
import tempfile

from house import CMAKE, SOURCE, expect, run, run_well

# What find_package() is asked for by each option; hiding it is the same as not having it.
PACKAGES = {"BLAS": "CBLAS", "KOKKOS": "Kokkos", "CUDA": "CUDAToolkit", "NCCL": "NCCL"}


def configure(*definitions):
    with tempfile.TemporaryDirectory() as folder:
        done = run(CMAKE, "-S", SOURCE, "-B", folder, "-G", "Ninja", "-DDISTATTN_BUILD_TESTS=OFF",
                   "-DDISTATTN_BUILD_CLI=OFF", *definitions)
    return done.returncode, re.sub(r"\s+", " ", done.stdout)


BY_PKG_CONFIG = ["UCX", "PMIX"]
hide = [*(f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in PACKAGES.values()),
        "-DPKG_CONFIG_EXECUTABLE=/bin/false"]

code, output = configure(*hide)
expect(code == 0, f"without optional packages the project does not configure\n{output}")
printed = set(re.findall(r"DISTATTN_WITH_(\w+)=AUTO: OFF", output))
options = {*PACKAGES, *BY_PKG_CONFIG}
expect(printed == options, f"the summary shows {sorted(printed)}, expected {sorted(options)}\n{output}")

for option in sorted(options):
    code, output = configure(*hide, f"-DDISTATTN_WITH_{option}=ON")
    expect(code != 0, f"DISTATTN_WITH_{option}=ON configured without its package")
    expect(re.search(r"not found .*apt-get install \S+.*spack install \S+.*conda install \S+", output),
           f"the error of DISTATTN_WITH_{option}=ON does not say what to install\n{output}")

    code, output = configure(*hide, f"-DDISTATTN_WITH_{option}=OFF")
    expect(code == 0 and f"DISTATTN_WITH_{option}=OFF: OFF switched off" in output,
           f"the summary does not show DISTATTN_WITH_{option}=OFF\n{output}")

    code, output = configure(*hide, f"-DDISTATTN_WITH_{option}=MAYBE")
    expect(code != 0 and "AUTO, ON or OFF" in output, f"DISTATTN_WITH_{option}=MAYBE was accepted")

code, output = configure(*hide, "-DDISTATTN_WITH_CUDA=OFF", "-DDISTATTN_WITH_NCCL=ON")
expect(code != 0 and "NCCL=ON without CUDA" in output, f"NCCL without CUDA is not refused as what it is\n{output}")


def kokkos(folder, version, devices, target="INTERFACE", location=""):
    """A Kokkos that has nothing but its package."""
    (folder / "KokkosConfig.cmake").write_text(f"""set(Kokkos_VERSION {version})
set(Kokkos_DEVICES {devices})
add_library(Kokkos::kokkos {target} IMPORTED)
set_target_properties(Kokkos::kokkos PROPERTIES IMPORTED_LOCATION "{location}")
""")


# One that is found and does not do is left out, or refused, for what it is.
with tempfile.TemporaryDirectory() as name:
    package = pathlib.Path(name)
    archive = package / "libkokkoscore.a"
    source = package / "kokkos.cpp"
    source.write_text("namespace Kokkos { thread_local int count; bool is_initialized() noexcept { return ++count > 1; } "
                      "void finalize() {} }")
    run_well(os.environ["CXX"], "-c", "-fno-pic", source, "-o", package / "kokkos.o")
    run_well("ar", "rc", archive, package / "kokkos.o")
    here = [f"-DKokkos_DIR={package}", "-DDISTATTN_WITH_CUDA=OFF"]
    for own, reason in (((package, "4.1.0", "OPENMP"), "has no Serial space, and its others need 4.2 or later"),
                        ((package, "4.6.1", "CUDA SERIAL"), "has CUDA, and nothing here is compiled for that"),
                        ((package, "4.6.1", "OPENMP", "STATIC", archive), "does not link into a shared library")):
        kokkos(*own)
        code, output = configure(*here)
        expect(code == 0 and re.search(f"DISTATTN_WITH_KOKKOS=AUTO: OFF Kokkos [0-9.]+ {reason}", output), output)
        code, output = configure(*here, "-DDISTATTN_WITH_KOKKOS=ON")
        expect(code != 0 and reason in output, f"{reason} is not what the error says\n{output}")
    code, output = configure(*here, "-DBUILD_SHARED_LIBS=OFF")
    expect(code == 0 and "DISTATTN_WITH_KOKKOS=AUTO: ON" in output, output)

print(f"{len(options)} options")
