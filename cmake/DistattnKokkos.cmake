# Finds Kokkos and decides on DISTATTN_WITH_KOKKOS. DISTATTN_KOKKOS_SPACES are the execution spaces that it has and the
# portable kernels are compiled for, in small letters.

# No version is asked for: Debian's 3.4 refuses every range that reaches past 3.4.
find_package(Kokkos CONFIG QUIET)
if(TARGET trilinos_kokkoscore)
  # As Debian ships it, the target names an include directory that does not exist.
  get_filename_component(_kokkos_include "${Kokkos_INCLUDE_DIRS}" ABSOLUTE)
  set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_kokkos_include}")
endif()
string(TOLOWER "${Kokkos_DEVICES}" DISTATTN_KOKKOS_HAS)
set(found "${Kokkos_FOUND}")
if(found AND NOT "serial" IN_LIST DISTATTN_KOKKOS_HAS)
  message(STATUS "Kokkos ${Kokkos_VERSION} is left out: it has no Serial space")
  set(found OFF)
endif()
distattn_option(KOKKOS "${found}" "Kokkos" "libtrilinos-kokkos-dev" "kokkos" "kokkos")

set(DISTATTN_KOKKOS_SPACES "")
if(DISTATTN_HAVE_KOKKOS)
  set(DISTATTN_KOKKOS_SPACES serial)
  foreach(space IN ITEMS openmp threads cuda hip sycl)
    # Before 4.2 ranks could have no threads, and no instance of a device, of their own.
    if(space IN_LIST DISTATTN_KOKKOS_HAS AND Kokkos_VERSION VERSION_GREATER_EQUAL 4.2)
      list(APPEND DISTATTN_KOKKOS_SPACES ${space})
    endif()
  endforeach()
endif()

# Tells a test the tables of the portable kernels' host spaces.
function(distattn_portable_tables target)
  set(host_spaces ${DISTATTN_KOKKOS_SPACES})
  list(FILTER host_spaces INCLUDE REGEX "^(serial|openmp|threads)$")
  list(TRANSFORM host_spaces REPLACE "(.+)" "&kernels::portable::\\1_kernels()" OUTPUT_VARIABLE tables)
  list(JOIN tables ", " tables)
  target_compile_definitions(${target} PRIVATE "DISTATTN_PORTABLE_TABLES=${tables}")
endfunction()
