"""The shared library of distattn, its headers and its CMake files.

`load_library()` loads it, `prefix` is the folder for CMAKE_PREFIX_PATH. The package `distattn` is what calls it.
"""

from ._load import SYSTEM_FIRST, load_library, prefix

__all__ = ["SYSTEM_FIRST", "__version__", "load_library", "prefix"]
__version__ = "0.1.0"
