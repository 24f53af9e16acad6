# The commit of the sources, looked up at every build and written only when it changed.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  # distattn_commit_header(<target> <folder>): the target sees <folder>/commit.hpp, which defines DISTATTN_COMMIT.
  function(distattn_commit_header target folder)
    set(header "${folder}/commit.hpp")
    add_custom_target(distattn_commit
      COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DHEADER=${header}"
              -P "${PROJECT_SOURCE_DIR}/cmake/DistattnCommit.cmake"
      BYPRODUCTS "${header}"
      COMMENT "Looking up the commit")
    add_dependencies(${target} distattn_commit)
    target_include_directories(${target} PRIVATE "${folder}")
  endfunction()
  return()
endif()

cmake_policy(VERSION 3.25)
set(commit unknown)
# Sources unpacked inside somebody else's checkout have no commit of their own.
if(EXISTS "${SOURCE}/.git")
  execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE found RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed EQUAL 0)
    set(commit "${found}")
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define DISTATTN_COMMIT \"${commit}\"\n" @ONLY)
