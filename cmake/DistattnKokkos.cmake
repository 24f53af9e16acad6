# Finds Kokkos and decides on DISTATTN_WITH_KOKKOS. DISTATTN_KOKKOS_SPACES are the execution spaces that it has and the
# portable kernels are compiled for, in small letters; DISTATTN_HAVE_KOKKOS_SERIAL says whether Serial is one, which also
# launches the vector kernels.

include(CheckCXXSourceCompiles)

# No version is asked for: Debian's 3.4 refuses every range that reaches past 3.4.
find_package(Kokkos CONFIG QUIET)
if(TARGET trilinos_kokkoscore)
  # As Debian ships it, the target names an include directory that does not exist.
  get_filename_component(_kokkos_include "${Kokkos_INCLUDE_DIRS}" ABSOLUTE)
  set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_kokkos_include}")
endif()
string(TOLOWER "${Kokkos_DEVICES}" DISTATTN_KOKKOS_HAS)
set(spaces serial openmp threads cuda hip sycl)
foreach(space IN LISTS spaces)
  # Before 4.2 ranks could have no threads, and no instance of a device, of their own.
  if(NOT space IN_LIST DISTATTN_KOKKOS_HAS
      OR (NOT space STREQUAL "serial" AND Kokkos_VERSION VERSION_LESS 4.2))
    list(REMOVE_ITEM spaces ${space})
  endif()
endforeach()
set(found "${Kokkos_FOUND}")
set(DISTATTN_UNUSABLE_KOKKOS "")
if(found AND NOT spaces)
  set(DISTATTN_UNUSABLE_KOKKOS "Kokkos ${Kokkos_VERSION} has no Serial space, and its others need 4.2 or later")
elseif(found AND "cuda" IN_LIST DISTATTN_KOKKOS_HAS AND NOT DISTATTN_HAVE_CUDA)
  set(DISTATTN_UNUSABLE_KOKKOS "Kokkos ${Kokkos_VERSION} has CUDA, and nothing here is compiled for that")
elseif(found AND BUILD_SHARED_LIBS AND NOT "cuda" IN_LIST DISTATTN_KOKKOS_HAS)
  # Kokkos itself builds static libraries, of code for programs alone, unless it is told otherwise.
  set(CMAKE_REQUIRED_LIBRARIES Kokkos::kokkos)
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared)
  set(CMAKE_REQUIRED_QUIET ON)
  unset(DISTATTN_KOKKOS_IS_SHARED CACHE)
  check_cxx_source_compiles("namespace Kokkos {
      bool is_initialized() noexcept;
      void finalize();
    }
    void end() { if (Kokkos::is_initialized()) Kokkos::finalize(); }" DISTATTN_KOKKOS_IS_SHARED)
  unset(CMAKE_REQUIRED_LIBRARIES)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  unset(CMAKE_REQUIRED_QUIET)
  if(NOT DISTATTN_KOKKOS_IS_SHARED)
    set(DISTATTN_UNUSABLE_KOKKOS "Kokkos ${Kokkos_VERSION} does not link into a shared library, build it with \
-DBUILD_SHARED_LIBS=ON or -DCMAKE_POSITION_INDEPENDENT_CODE=ON, or distattn with -DBUILD_SHARED_LIBS=OFF")
  endif()
endif()
if(DISTATTN_UNUSABLE_KOKKOS)
  set(found OFF)
endif()
distattn_option(KOKKOS "${found}" "Kokkos" "libtrilinos-kokkos-dev" "kokkos" "kokkos")

set(DISTATTN_KOKKOS_SPACES "")
set(DISTATTN_HAVE_KOKKOS_SERIAL OFF)
set(DISTATTN_WHY_NOT_KOKKOS_SERIAL "${DISTATTN_WHY_NOT_KOKKOS}")
if(DISTATTN_HAVE_KOKKOS)
  set(DISTATTN_KOKKOS_SPACES ${spaces})
  if("serial" IN_LIST spaces)
    set(DISTATTN_HAVE_KOKKOS_SERIAL ON)
  else()
    list(JOIN DISTATTN_KOKKOS_HAS ", " _has)
    set(DISTATTN_WHY_NOT_KOKKOS_SERIAL "the Kokkos that distattn was built with has ${_has} alone, not serial")
  endif()
endif()

if(DISTATTN_HAVE_KOKKOS AND "cuda" IN_LIST DISTATTN_KOKKOS_HAS)
  # Kokkos has its nvcc_wrapper compile and link whatever uses it. Here nvcc gets the files that include Kokkos alone.
  set_target_properties(Kokkos::kokkoscore PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_LINK_OPTIONS "")
  set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE "")
  set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "")
endif()

# distattn_include_kokkos(<target> <sources>...): sources that include Kokkos, which has a say in how they are compiled.
function(distattn_include_kokkos target)
  target_link_libraries(${target} PRIVATE Kokkos::kokkos)
  if(NOT "cuda" IN_LIST DISTATTN_KOKKOS_HAS)
    return()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  # Small functions that hosts and devices share are constexpr rather than marked.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
    CUDA_ARCHITECTURES "${Kokkos_CUDA_ARCHITECTURES}")
endfunction()

# Tells a test the tables of the portable kernels' host spaces.
function(distattn_portable_tables target)
  set(host_spaces ${DISTATTN_KOKKOS_SPACES})
  list(FILTER host_spaces INCLUDE REGEX "^(serial|openmp|threads)$")
  list(TRANSFORM host_spaces REPLACE "(.+)" "&kernels::portable::\\1_kernels()" OUTPUT_VARIABLE tables)
  list(JOIN tables ", " tables)
  target_compile_definitions(${target} PRIVATE "DISTATTN_PORTABLE_TABLES=${tables}")
endfunction()
