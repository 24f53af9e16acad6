# SPDX-License-Identifier: Apache-2.0

import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Distattn(CMakePackage, CudaPackage):
    """Distributed, memory-efficient, exact attention: schedules that are planned as data, proved before they run,
    and executed on CPUs and GPUs."""

    # This copy of the recipe builds the checkout that it lies in.
    git = pathlib.Path(__file__).resolve().parents[6].as_uri()
    homepage = git

    license("Apache-2.0", checked_by="distattn")

    version("main", branch="main")

    variant("shared", default=True, description="Build a shared library")
    variant("ucx", default=True, description="UCX transport")
    variant("pmix", default=True, description="Start under PMIx launchers (mpirun, srun)")
    variant("nccl", default=True, description="NCCL transport", when="+cuda")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("python", type="test")
    depends_on("catch2@2.13:3", type="test")

    depends_on("cli11@2.1:")
    depends_on("fmt@9:")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3:")
    depends_on("openblas")
    # Kokkos carries the portable kernels to hosts; CUDA kernels are our own, so a CUDA Kokkos is neither needed nor excluded.
    depends_on("kokkos@4:5")
    depends_on("kokkos+pic", when="~shared")

    depends_on("pkgconfig", type="build")
    depends_on("pmix@4:", when="+pmix")
    # Lanes are workers of one context, each on its own thread.
    depends_on("ucx@1.13:+thread_multiple", when="+ucx")
    depends_on("cuda@12.3:", when="+cuda")
    depends_on("nccl@2.14:", when="+nccl")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl+cuda cuda_arch={arch}", when=f"+nccl cuda_arch={arch}")

    conflicts("cuda_arch=none", when="+cuda", msg="distattn+cuda needs a value for cuda_arch")
    conflicts("%gcc@:11", msg="distattn is written in C++20: gcc 12 or later")
    conflicts("%clang@:13", msg="distattn is written in C++20: clang 14 or later")

    sanity_check_is_file = [
        join_path("bin", "distattn"),
        join_path("include", "distattn", "attention.hpp"),
        join_path("include", "distattn", "distattn.h"),
    ]

    def cmake_args(self):
        args = [
            self.define("DISTATTN_BUILD_CLI", True),
            self.define("DISTATTN_BUILD_TESTS", self.run_tests),
            self.define("DISTATTN_WITH_BLAS", "ON"),
            self.define("DISTATTN_WITH_KOKKOS", "ON"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("DISTATTN_WITH_UCX", "ucx"),
            self.define_from_variant("DISTATTN_WITH_PMIX", "pmix"),
            self.define_from_variant("DISTATTN_WITH_CUDA", "cuda"),
            self.define("DISTATTN_WITH_NCCL", self.spec.satisfies("+nccl")),
        ]
        if self.spec.satisfies("+cuda"):
            # Hopper's own kernels use what 90a alone has.
            archs = ["90a" if arch == "90" else arch for arch in self.spec.variants["cuda_arch"].value]
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", sorted(set(archs))))
        return args

    def test_validate(self):
        """results of every schedule on four ranks against the float64 oracle"""
        distattn = which(self.prefix.bin.distattn)
        distattn("validate", "--ranks", "4", "--seq", "256", "--heads", "4", "--head-dim", "64")
