"""The Conda recipe against this tree: its options exist, its outputs share out exactly what is installed."""

import fnmatch
import re

from house import SOURCE, cmake_options, expect, installed_files, package_hints, skip

try:
    import yaml
except ImportError:
    skip("PyYAML is not there (apt-get install python3-yaml)")

folder = SOURCE / "packaging/conda"
recipe = yaml.safe_load((folder / "recipe.yaml").read_text())


def check_definitions():
    script = (folder / "build.sh").read_text()
    options, defined = cmake_options(), set(re.findall(r"-D(\w+)=", script))
    unknown = {name for name in defined if not name.startswith("CMAKE_")} - options
    expect(not unknown, f"build.sh sets {sorted(unknown)}, which CMake does not know")
    left_out = {name for name in options if name.startswith("DISTATTN_WITH_")} - defined
    expect(not left_out, f"build.sh leaves {sorted(left_out)} to chance")


def check_version():
    version = re.search(r"project\(distattn VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
    context = recipe["context"]
    expect(context["version"] == version, f"the recipe is of version {context['version']}, not {version}")
    expect(context["soversion"] == ".".join(version.split(".")[:2]), "soversion is not major.minor")


def check_dependencies():
    text = (folder / "recipe.yaml").read_text()
    # Conda's CUDA compiler is what others call cuda-nvcc.
    needed = set(re.findall(r"^ +- ([a-z][\w-]+)", text.replace('${{ compiler("cuda") }}', "cuda-nvcc"), re.M))
    hints = package_hints("conda")
    expect(hints <= needed, f"CMake's errors name {sorted(hints - needed)}, on which the recipe does not depend")


def check_files():
    """Each file goes to the output of its component, and to that alone."""
    output_of = {"runtime": "libdistattn", "devel": "libdistattn-devel", "cli": "distattn"}
    globs = {output["package"]["name"]: output["build"]["files"] for output in recipe["outputs"] if "package" in output}
    expect(set(globs) == set(output_of.values()), f"the outputs are {sorted(globs)}")
    shared_out = 0
    for component, output in output_of.items():
        files = installed_files("--component", component)
        shared_out += len(files)
        for file in files:
            takers = [name for name, patterns in globs.items() if any(matches(file, glob) for glob in patterns)]
            expect(takers == [output], f"{file} of component {component} goes to {takers}, not to {output}")
        for glob in globs[output]:
            expect(any(matches(file, glob) for file in files), f"{output}: nothing is installed as {glob}")
    expect(shared_out == len(installed_files()), "files are installed that belong to no component")
    return shared_out


def matches(file, glob):
    return fnmatch.fnmatchcase(file, glob.replace("**", "*"))


check_definitions()
check_version()
check_dependencies()
print(f"{check_files()} files")
