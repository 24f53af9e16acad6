# CBLAS: the C interface of a BLAS, OpenBLAS first. It is loaded at run time: CBLAS_SONAME is the name by which, and
# CBLAS_LIBRARY_FOLDER where it is here; a static library cannot be loaded and is not taken.

find_path(CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
find_library(CBLAS_LIBRARY NAMES openblas cblas)

if(CBLAS_LIBRARY AND CBLAS_LIBRARY MATCHES "\\.so")
  cmake_path(GET CBLAS_LIBRARY PARENT_PATH CBLAS_LIBRARY_FOLDER)
  cmake_path(GET CBLAS_LIBRARY FILENAME CBLAS_SONAME)
  if(CMAKE_READELF)
    execute_process(COMMAND "${CMAKE_READELF}" -d "${CBLAS_LIBRARY}" OUTPUT_VARIABLE dynamic ERROR_QUIET)
    if(dynamic MATCHES "SONAME[^\\[]*\\[([^]]+)\\]")
      set(CBLAS_SONAME "${CMAKE_MATCH_1}")
    endif()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CBLAS REQUIRED_VARS CBLAS_LIBRARY CBLAS_INCLUDE_DIR CBLAS_SONAME)
mark_as_advanced(CBLAS_INCLUDE_DIR CBLAS_LIBRARY)
