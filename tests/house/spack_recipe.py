"""The Spack recipe against this tree: its options and files exist, its dependencies fit its variants."""

import re

import fake_spack
from house import CMAKE, SOURCE, cmake_options, expect, installed_files, package_hints, run_well

recorder, recipe = fake_spack.load(SOURCE / "packaging/spack/spack_repo/distattn/packages/distattn/package.py")
options = cmake_options()
of_cmake = set(run_well(CMAKE, "--help-variable-list").split())

seen, count = set(), 0
for spec in fake_spack.combinations(recorder):
    count += 1
    for argument in recipe(spec).cmake_args():
        match = re.fullmatch(r"-D(\w+):\w+=(.*)", argument)
        expect(match, f"{argument} is no definition")
        name, value = match.groups()
        expect(name in options or (name.startswith("CMAKE_") and name in of_cmake),
               f"the recipe sets {name}, which CMake does not know")
        expect(not name.startswith("DISTATTN_WITH_") or value in ("ON", "OFF"),
               f"{argument}: Spack decides, AUTO would look around")
        seen.add(name)
        if name == "CMAKE_CUDA_ARCHITECTURES":
            expect("90" not in value.split(";"), "cuda_arch=90 leaves out Hopper's kernels, which 90a alone compiles")

expect(count >= 40, f"only {count} combinations of variants")
with_options = {name for name in options if name.startswith("DISTATTN_WITH_")}
expect(with_options <= seen, f"the recipe leaves {sorted(with_options - seen)} to chance")

needed = {re.split(r"[@+~ ]", spec)[0] for spec, _ in recorder.dependencies}
hints = package_hints("spack")
expect(hints <= needed, f"CMake's errors name {sorted(hints - needed)}, on which the recipe does not depend")
for variant in recorder.variants:
    if f"DISTATTN_WITH_{variant.upper()}" in with_options:
        expect(any(condition and f"+{variant}" in condition.split() for _, condition in recorder.dependencies),
               f"+{variant} brings no dependency")

expect(("cuda_arch=none", "+cuda") in recorder.conflicts, "+cuda without cuda_arch is not refused")
for arch in fake_spack.CudaPackage.cuda_arch_values:
    expect((f"nccl+cuda cuda_arch={arch}", f"+nccl cuda_arch={arch}") in recorder.dependencies,
           f"cuda_arch={arch} is not forwarded to nccl")

missing = set(recipe.sanity_check_is_file) - set(installed_files())
expect(not missing, f"the recipe checks {sorted(missing)}, which are not installed")
print(f"{count} combinations of variants, {len(seen)} definitions")
