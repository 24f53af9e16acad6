"""The two packages as wheels lay them out, without a build of wheels: what is found where, and what they say of
themselves."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

BUILD, PACKAGES = pathlib.Path(os.environ["DISTATTN_BUILD"]), pathlib.Path(os.environ["PYTHONPATH"]).parent
CALL = """
import pathlib, sys
import numpy as np
import distattn
q = np.ones((1, 8, 2, 8), np.float32)
assert distattn.attention(q, q, q, causal=True).shape == q.shape
loaded = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "libdistattn" in line}
print(*loaded, *(name for name in ("torch", "transformers") if name in sys.modules))
"""


def project(name):
    return tomllib.loads((PACKAGES / name / "pyproject.toml").read_text())["project"]


class Packages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.site = pathlib.Path(folder.name, "site").resolve()
        for name in ("distattn", "libdistattn"):
            shutil.copytree(PACKAGES / name / name, self.site / name)
        for component in ("runtime", "devel"):
            subprocess.run([os.environ["DISTATTN_CMAKE"], "--install", BUILD, "--prefix", self.site / "libdistattn",
                            "--component", component], check=True, capture_output=True)

    def run_well(self, code, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "DISTATTN_LIBRARY"}
        done = subprocess.run([sys.executable, "-B", "-W", "error", "-c", code], capture_output=True, text=True, check=False,
                              env={**environment, "PYTHONPATH": str(self.site), **variables}, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def library(self):
        return next(self.site.rglob("libdistattn.so")).resolve()

    def test_its_own_library(self):
        self.assertEqual(self.run_well(CALL), [str(self.library())])

    def test_the_systems_library(self):
        """First if that is asked for; and the wheel's own if there is none."""
        system = self.site.parent / "system"
        system.mkdir()
        shutil.copy(self.library(), system / "libdistattn.so.0.1")
        asked = {"LIBDISTATTN_PREFER_SYSTEM_LIBRARY": "1"}
        self.assertEqual(self.run_well(CALL, LD_LIBRARY_PATH=str(system), **asked), [str(system / "libdistattn.so.0.1")])
        self.assertEqual(self.run_well(CALL, LD_LIBRARY_PATH=str(system)), [str(self.library())])

    def test_where_projects_find_it(self):
        prefix, = self.run_well("import libdistattn; print(libdistattn.prefix)")
        self.assertTrue(list(pathlib.Path(prefix).rglob("cmake/distattn/distattnConfig.cmake")))
        self.assertTrue(pathlib.Path(prefix, "include/distattn/distattn.h").exists())

    def test_what_they_say_of_themselves(self):
        versions = self.run_well("import distattn, libdistattn; print(distattn.__version__, libdistattn.__version__)")
        for name in ("distattn", "libdistattn"):
            self.assertEqual([project(name)["version"]] * 2, versions)
            self.assertTrue((self.site / name / "py.typed").exists())
        self.assertEqual(project("distattn")["dependencies"], [f"libdistattn=={versions[0].rpartition('.')[0]}.*", "numpy"])
        self.assertEqual(project("libdistattn").get("dependencies", []), [])


if __name__ == "__main__":
    unittest.main()
