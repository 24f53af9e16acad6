"""Runs a script with a python3 that has the packages: with_packages.py numpy,torch SCRIPT [arguments...].

Python is not part of the build: the test is skipped where no interpreter has them. DISTATTN_PYTHON names one to try
first.
"""

import os
import shutil
import subprocess
import sys


def interpreters():
    named = os.environ.get("DISTATTN_PYTHON")
    return [each for each in (named, sys.executable, shutil.which("python3"), shutil.which("python3", path="/usr/bin"))
            if each]


def has(interpreter, packages):
    done = subprocess.run([interpreter, "-c", f"import sys; assert sys.version_info >= (3, 11); import {packages}"],
                          capture_output=True, check=False)
    return done.returncode == 0


packages, *command = sys.argv[1:]
for interpreter in interpreters():
    if has(interpreter, packages):
        sys.stdout.flush()
        os.execv(interpreter, [interpreter, "-B", *command])
print(f"SKIPPED: no python3 from 3.11 on has {packages} (DISTATTN_PYTHON names one to try)")
