# Finds the CUDA toolkit, enables its language and decides on DISTATTN_WITH_CUDA.

set(DISTATTN_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING
  "What the CUDA kernels are compiled for: 80 as code and as PTX for what comes after, 90a for Hopper")

# packaging/setup.sh gives the reason: compiling kernels is a large part of a first build.
set(DISTATTN_LEFT_OUT_CUDA "" CACHE STRING "Why CUDA is left out where DISTATTN_WITH_CUDA is AUTO; empty: it is not")

set(_cuda_found OFF)
if(DISTATTN_WITH_CUDA STREQUAL "ON" OR NOT (DISTATTN_WITH_CUDA STREQUAL "OFF" OR DISTATTN_LEFT_OUT_CUDA))
  find_package(CUDAToolkit 12.3 QUIET)  # the first whose ptxas has the fence that a tensor map needs
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart_static)
    include(CheckLanguage)
    if(NOT DEFINED CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
      set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
    endif()
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      set(_cuda_found ON)
    endif()
  endif()
endif()
distattn_option(CUDA "${_cuda_found}" "the CUDA toolkit (12.3 or later, with nvcc)" "nvidia-cuda-toolkit" "cuda"
  "cuda-nvcc cuda-cudart-static")

if(DISTATTN_WITH_NCCL STREQUAL "ON" AND DISTATTN_WITH_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "DISTATTN_WITH_NCCL=ON without CUDA (NCCL connects GPUs alone) set DISTATTN_WITH_CUDA=ON, or "
                      "leave NCCL out")
endif()
if(DISTATTN_HAVE_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "${DISTATTN_CUDA_ARCHITECTURES}")
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES MATCHES "90a" AND CMAKE_CUDA_ARCHITECTURES MATCHES "90|all|native")
    message(WARNING "CMAKE_CUDA_ARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES} leaves out Hopper's own kernels (they are "
                    "compiled for 90a, not for 90) add 90a-real")
  endif()
  enable_language(CUDA)
  if(CMAKE_VERSION VERSION_LESS 3.25.2)
    # Before 3.25.2 CMake does not know that nvcc has C++20, and drops the wish in silence.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
endif()
