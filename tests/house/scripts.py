"""The scripts of the project are clean for shellcheck and can be executed."""

import os
import shutil

from house import SOURCE, expect, run_well, skip

scripts = sorted(path for room in ("packaging", "cmake", "tests") for path in (SOURCE / room).rglob("*.sh"))
scripts += [SOURCE / ".ci/run", SOURCE / ".ci/nightly"]
expect(len(scripts) >= 8, f"scripts are missing: there are {scripts}")
for script in scripts:
    expect(os.access(script, os.X_OK), f"{script} is not executable")

if shutil.which("shellcheck") is None:
    skip("shellcheck is not installed (apt-get install shellcheck)")
run_well("shellcheck", *scripts)
