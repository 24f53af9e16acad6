# Finds Kokkos and decides on DISTATTN_WITH_KOKKOS.

# No version is asked for: Debian's 3.4 refuses every range that reaches past 3.4.
find_package(Kokkos CONFIG QUIET)
if(TARGET trilinos_kokkoscore)
  # As Debian ships it, the target names an include directory that does not exist.
  get_filename_component(_kokkos_include "${Kokkos_INCLUDE_DIRS}" ABSOLUTE)
  set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_kokkos_include}")
endif()
distattn_option(KOKKOS "${Kokkos_FOUND}" "Kokkos" "libtrilinos-kokkos-dev" "kokkos" "kokkos")
