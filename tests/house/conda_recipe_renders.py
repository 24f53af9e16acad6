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
expect(names == ["distattn", "libdistattn", "libdistattn-devel"], f"rendered {names}")
expect(len({str(recipe["staging_caches"]) for recipe in rendered}) == 1, "the packages are not built once")
print(f"{len(rendered)} packages")
