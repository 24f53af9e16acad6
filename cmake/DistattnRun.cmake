# Running what was built, from the build tree: packagers may build without RPATHs there (Nix, Guix, CMAKE_SKIP_RPATH).

if(APPLE)
  set(_loader_path DYLD_LIBRARY_PATH)
else()
  set(_loader_path LD_LIBRARY_PATH)
endif()

# distattn_run_command(<out>): the command line that runs the target distattn_cli with the library beside it.
function(distattn_run_command out)
  set(${out} "${CMAKE_COMMAND}" -E env --modify "${_loader_path}=path_list_prepend:$<TARGET_FILE_DIR:distattn>"
    ${CMAKE_CROSSCOMPILING_EMULATOR} "$<TARGET_FILE:distattn_cli>" PARENT_SCOPE)
endfunction()

# Environment variables with which tests find the library where there are no RPATHs.
set(DISTATTN_RUN_ENVIRONMENT "")
if(CMAKE_SKIP_RPATH OR CMAKE_SKIP_BUILD_RPATH)
  set(DISTATTN_RUN_ENVIRONMENT "${_loader_path}=$<TARGET_FILE_DIR:distattn>:$ENV{${_loader_path}}")
endif()
