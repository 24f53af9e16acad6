# Optional backends: DISTATTN_WITH_<NAME>=AUTO|ON|OFF, an outcome for each, and the registry's list.

set_property(GLOBAL PROPERTY DISTATTN_BACKEND_LINES "")

# distattn_option(<NAME> <found> <what was looked for> <debian> <spack> <conda>)
# Sets DISTATTN_HAVE_<NAME> in the caller's scope. ON without the package is an error that says what to install, or why
# the one that is there does not do (DISTATTN_UNUSABLE_<NAME>, which is empty if it does).
function(distattn_option name found what debian spack conda)
  set(DISTATTN_WITH_${name} AUTO CACHE STRING "Build with ${what}: AUTO, ON or OFF")
  set_property(CACHE DISTATTN_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  set(wish "${DISTATTN_WITH_${name}}")
  if(NOT wish MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "DISTATTN_WITH_${name}=${wish} is not an option (AUTO, ON or OFF) choose one of these")
  endif()
  distattn_package_hint(hint "${debian}" "${spack}" "${conda}")
  set(have OFF)
  if(wish STREQUAL "OFF")
    set(why "switched off by DISTATTN_WITH_${name}=OFF")
  elseif(found)
    set(have ON)
    set(why "")
  elseif(wish STREQUAL "ON" AND DISTATTN_UNUSABLE_${name})
    message(FATAL_ERROR "DISTATTN_WITH_${name}=ON cannot be had: ${DISTATTN_UNUSABLE_${name}}")
  elseif(wish STREQUAL "ON")
    message(FATAL_ERROR "${what} not found (DISTATTN_WITH_${name}=ON needs it); ${hint}")
  elseif(DISTATTN_UNUSABLE_${name})
    set(why "${DISTATTN_UNUSABLE_${name}}")
  elseif(DISTATTN_LEFT_OUT_${name})
    set(why "${DISTATTN_LEFT_OUT_${name}}")
  else()
    set(why "${what} was not found when distattn was built")
  endif()
  set(DISTATTN_HAVE_${name} ${have} PARENT_SCOPE)
  set(DISTATTN_WHY_NOT_${name} "${why}" PARENT_SCOPE)
  set_property(GLOBAL APPEND PROPERTY DISTATTN_OPTION_SUMMARY "DISTATTN_WITH_${name}=${wish}: ${have} ${why}")
endfunction()

# distattn_backend(<name> <kind> <built> <why not> [<identifier>]): one line of the registry, built or not. A built one
# defines register_<identifier>(), which is its name where no other kind has that.
function(distattn_backend name kind built why)
  if(built)
    string(MAKE_C_IDENTIFIER "${name}" identifier)
    if(ARGC GREATER 4)
      set(identifier "${ARGV4}")
    endif()
    set(line "DISTATTN_BUILT(${identifier}, ${kind}, \"${name}\")")
    set_property(GLOBAL APPEND PROPERTY DISTATTN_BUILT_BACKENDS ${name})
  else()
    set(line "DISTATTN_ABSENT(${name}, ${kind}, \"${why}\")")
    set_property(GLOBAL APPEND_STRING PROPERTY DISTATTN_WHY_ABSENT "set(_distattn_why_no_${name} [==[${why}]==])\n")
  endif()
  set_property(GLOBAL APPEND PROPERTY DISTATTN_BACKEND_LINES "${line}")
endfunction()

# distattn_launcher(<bootstrap>): it says whether a launcher of its own started this process, built or not, in
# launcher_<bootstrap>().
function(distattn_launcher name)
  set_property(GLOBAL APPEND PROPERTY DISTATTN_BACKEND_LINES "DISTATTN_LAUNCHER(${name})")
endfunction()

# Writes backends.def for backends/registry.cpp.
function(distattn_write_registry file)
  get_property(lines GLOBAL PROPERTY DISTATTN_BACKEND_LINES)
  list(JOIN lines "\n" text)
  file(CONFIGURE OUTPUT "${file}" CONTENT "${text}\n" @ONLY)
endfunction()

function(distattn_print_summary)
  get_property(lines GLOBAL PROPERTY DISTATTN_OPTION_SUMMARY)
  message(STATUS "distattn ${PROJECT_VERSION} (${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION})")
  foreach(line IN LISTS lines)
    message(STATUS "  ${line}")
  endforeach()
endfunction()
