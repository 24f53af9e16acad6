# Finding packages, with errors that name what to install.

# The line that says where a missing package comes from.
function(distattn_package_hint out debian spack conda)
  set(${out} "install it with: apt-get install ${debian} | spack install ${spack} | conda install ${conda}" PARENT_SCOPE)
endfunction()

# find_package(<name>) that must succeed, unless the project that this is a part of brings the package itself.
macro(distattn_require name debian spack conda)
  if(NOT TARGET ${name}::${name})
    find_package(${name} QUIET)
  endif()
  if(NOT ${name}_FOUND AND NOT TARGET ${name}::${name})
    distattn_package_hint(_hint "${debian}" "${spack}" "${conda}")
    message(FATAL_ERROR "${name} not found (distattn needs it); ${_hint}")
  endif()
endmacro()
