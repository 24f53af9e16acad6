# What is installed where, and how consumers find it: CMake package, pkg-config file, components runtime, devel, cli.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Where things are below the prefix, also where a packager names folders absolutely.
foreach(folder IN ITEMS BINDIR LIBDIR INCLUDEDIR)
  file(RELATIVE_PATH DISTATTN_${folder} "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_${folder}}")
endforeach()

# What a static libdistattn asks of whoever links it: link item | find_dependency arguments | pkg-config module.
# A backend that links something else adds its line; configuring fails until it does. PkgConfig::<name> has no package
# of its own.
set(DISTATTN_LINK_DEPENDENCIES
  "fmt::fmt|fmt|fmt"
  "Threads::Threads|Threads|"
  "Kokkos::kokkos|Kokkos|"
  "PkgConfig::PMIX||pmix"
  "CUDA::cudart_static|CUDAToolkit|")

# The line of DISTATTN_LINK_DEPENDENCIES for a link item, split into `out`.
function(distattn_link_dependency out item)
  foreach(line IN LISTS DISTATTN_LINK_DEPENDENCIES)
    string(REPLACE "|" ";" fields "${line}")
    list(GET fields 0 name)
    if(name STREQUAL item)
      set(${out} "${fields}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${item} is linked but not in DISTATTN_LINK_DEPENDENCIES (consumers of the static library could "
                      "not find it) add a line to cmake/DistattnInstall.cmake")
endfunction()

# What the linker is told for a link item, for those who do not use CMake.
function(distattn_linker_flags out item)
  string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" item "${item}")
  set(flags "")
  if(TARGET "${item}")
    get_target_property(type "${item}" TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND flags "$<TARGET_LINKER_FILE:${item}>")
    endif()
    get_target_property(more "${item}" INTERFACE_LINK_LIBRARIES)
    foreach(each IN LISTS more)
      distattn_linker_flags(nested "${each}")
      list(APPEND flags ${nested})
    endforeach()
  elseif(item MATCHES "^(-l|-L|-Wl,|/)")
    list(APPEND flags "${item}")
  endif()
  list(REMOVE_DUPLICATES flags)
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# find_dependency() lines and pkg-config fields for the static library's own link items.
function(distattn_static_dependencies finds requires libs)
  set(${finds} "" PARENT_SCOPE)
  set(${requires} "" PARENT_SCOPE)
  set(${libs} "" PARENT_SCOPE)
  if(BUILD_SHARED_LIBS)
    return()
  endif()
  get_target_property(items distattn LINK_LIBRARIES)
  set(find_lines "")
  set(modules "")
  set(flags "")
  foreach(item IN LISTS items)
    distattn_link_dependency(fields "${item}")
    list(GET fields 1 package)
    list(GET fields 2 module)
    if(package)
      string(APPEND find_lines "find_dependency(${package})\n")
    else()
      string(REPLACE "PkgConfig::" "" target "${item}")
      string(APPEND find_lines
        "find_dependency(PkgConfig)\npkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${module})\n")
    endif()
    if(module)
      list(APPEND modules "${module}")
    else()
      distattn_linker_flags(own "${item}")
      list(APPEND flags ${own})
    endif()
  endforeach()
  list(APPEND flags -pthread -lstdc++ -lm)
  list(JOIN modules " " modules)
  list(JOIN flags " " flags)
  set(${finds} "${find_lines}" PARENT_SCOPE)
  set(${requires} "${modules}" PARENT_SCOPE)
  set(${libs} "${flags}" PARENT_SCOPE)
endfunction()

function(distattn_install_library)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
  install(TARGETS distattn EXPORT distattnTargets
    LIBRARY COMPONENT runtime NAMELINK_COMPONENT devel
    ARCHIVE COMPONENT devel
    INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/core/include/distattn" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT devel FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
endfunction()

function(distattn_install_package_files)
  set(folder "${CMAKE_INSTALL_LIBDIR}/cmake/distattn")
  set(generated "${PROJECT_BINARY_DIR}/package")
  distattn_static_dependencies(DISTATTN_FINDS DISTATTN_REQUIRES DISTATTN_LIBS)
  get_property(DISTATTN_BUILT_BACKENDS GLOBAL PROPERTY DISTATTN_BUILT_BACKENDS)
  list(REMOVE_DUPLICATES DISTATTN_BUILT_BACKENDS)
  get_property(DISTATTN_WHY_ABSENT GLOBAL PROPERTY DISTATTN_WHY_ABSENT)

  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/distattnConfig.cmake.in"
    "${generated}/distattnConfig.cmake" INSTALL_DESTINATION "${folder}" PATH_VARS CMAKE_INSTALL_BINDIR)
  write_basic_package_version_file("${generated}/distattnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(EXPORT distattnTargets NAMESPACE distattn:: DESTINATION "${folder}" COMPONENT devel)
  install(FILES "${generated}/distattnConfig.cmake" "${generated}/distattnConfigVersion.cmake"
    DESTINATION "${folder}" COMPONENT devel)

  file(RELATIVE_PATH DISTATTN_UP "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
  string(REGEX REPLACE "/$" "" DISTATTN_UP "${DISTATTN_UP}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/distattn.pc.in" "${generated}/distattn.pc.in" @ONLY)
  file(GENERATE OUTPUT "${generated}/distattn.pc" INPUT "${generated}/distattn.pc.in")
  install(FILES "${generated}/distattn.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT devel)
endfunction()

# The command finds the library beside itself, wherever the prefix is moved; a packager's own RPATH wins.
function(distattn_install_cli)
  if(BUILD_SHARED_LIBS AND NOT DEFINED CMAKE_INSTALL_RPATH)
    file(RELATIVE_PATH up "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
    set_target_properties(distattn_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${up}")
  endif()
  install(TARGETS distattn_cli RUNTIME COMPONENT cli)
endfunction()

# The manual and the completions are what the program itself prints.
function(distattn_install_cli_documents)
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()
  endif()
  distattn_run_command(distattn)
  set(share "${PROJECT_BINARY_DIR}/share")
  set(written "")
  foreach(document IN ITEMS
      "man/man1/distattn.1|manual" "bash-completion/completions/distattn|completion bash"
      "zsh/site-functions/_distattn|completion zsh" "fish/vendor_completions.d/distattn.fish|completion fish")
    string(REGEX MATCH "(.*)\\|(.*)" _ "${document}")
    set(file "${share}/${CMAKE_MATCH_1}")
    separate_arguments(arguments UNIX_COMMAND "${CMAKE_MATCH_2}")
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY "${folder}")
    add_custom_command(OUTPUT "${file}" COMMAND ${distattn} ${arguments} > "${file}" VERBATIM
      DEPENDS distattn_cli COMMENT "Writing ${CMAKE_MATCH_1}")
    list(APPEND written "${file}")
  endforeach()
  add_custom_target(distattn_cli_documents ALL DEPENDS ${written})
  install(DIRECTORY "${share}/" DESTINATION "${CMAKE_INSTALL_DATADIR}" COMPONENT cli)
endfunction()

distattn_install_library()
distattn_install_package_files()
if(DISTATTN_BUILD_CLI)
  distattn_install_cli()
  distattn_install_cli_documents()
endif()
