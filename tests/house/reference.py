"""Doxygen makes the API reference without a warning."""

import os
import shutil
import tempfile

from house import SOURCE, run_well, skip

if shutil.which("doxygen") is None:
    skip("doxygen is not installed (apt-get install doxygen)")
with tempfile.TemporaryDirectory() as folder:
    run_well("doxygen", "packaging/Doxyfile", cwd=SOURCE, env={**os.environ, "OUTPUT_DIRECTORY": folder})
