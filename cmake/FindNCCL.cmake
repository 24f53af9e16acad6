# NCCL's header: the library itself is loaded when the program runs. Sets NCCL_FOUND and NCCL_INCLUDE_DIR.

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NCCL_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_INCLUDE_DIR)
