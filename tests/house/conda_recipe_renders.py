"""The Conda recipe renders, for every variant, into three packages that are built once."""

from house import SOURCE, expect, skip

try:
    from rattler_build import Stage0Recipe, VariantConfig
except ImportError:
    skip("rattler-build is not there (pip install py-rattler-build)")

folder = SOURCE / "packaging/conda"
variants = VariantConfig.from_file(str(folder / "variants.yaml"))
rendered = [package.recipe.to_dict()
            for package in Stage0Recipe.from_file(str(folder / "recipe.yaml")).render(variants)]

names = sorted(recipe["package"]["name"] for recipe in rendered)
expect(names == sorted(["distattn", "libdistattn", "libdistattn-devel"] * 2), f"rendered {names}")
expect(len({str(recipe["staging_caches"]) for recipe in rendered}) == 2, "the packages of a variant are not built once")
for recipe in rendered:
    needed = recipe["staging_caches"][0]["requirements"]
    cuda = any(requirement.startswith("cuda") for requirement in needed["build"])
    expect(cuda == ("nccl" in needed["host"]), f"CUDA and NCCL do not come together: {needed}")
print(f"{len(rendered)} packages")
