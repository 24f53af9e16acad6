# The language that distattn is written in, and what of a packager's flags cannot hold for it.

# A newer standard is kept, so that a whole distribution or project is compiled alike. 98 is the oldest, not the newest.
# CUDA has one of its own: without it CMake gives it that of C++, and asks nvcc for what it may not have yet.
foreach(language CXX CUDA)
  if(NOT CMAKE_${language}_STANDARD MATCHES "^[23][0-9]$")
    if(DEFINED CMAKE_${language}_STANDARD AND PROJECT_IS_TOP_LEVEL)
      message(FATAL_ERROR "CMAKE_${language}_STANDARD=${CMAKE_${language}_STANDARD} is too old (distattn is written in "
                          "C++20) leave it out, or give 20 or later")
    endif()
    set(CMAKE_${language}_STANDARD 20)
  endif()
endforeach()
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_EXTENSIONS OFF)

# Exact rounding, infinities and denormals are part of what is computed, so -ffast-math among CMAKE_CXX_FLAGS does not hold
# here. When linking, it would even flush the denormals of the whole process, which -Ofast cannot be kept from. To clang
# -fno-fast-math also says to join no products and sums, which costs half of the kernels' speed: there the flag is refused.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-fast-math>)
add_link_options($<$<LINK_LANG_AND_ID:CXX,GNU>:-fno-fast-math>)

string(TOUPPER "${CMAKE_BUILD_TYPE}" _build_type)
set(_refused "-Ofast")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(APPEND _refused "|-ffast-math")
endif()
if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${_build_type}}" MATCHES "(${_refused})")
  message(FATAL_ERROR "${CMAKE_MATCH_1} is among the compiler's flags (it gives up infinities and denormals, which exact "
                      "attention computes with) use -O3")
endif()

# Names of source files in messages are the same wherever distattn is built: so are its packages.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>")
