# CUDA kernels contain no torch, so they compile wherever nvcc is; they are linked into the program when torch has CUDA.

# Gives a torch room the CUDA kernels and the headers that its wrappers need (macro K3_WITH_CUDA).
function(k3_use_cuda target)
  if(TARGET k3_cuda_kernels AND K3_TORCH_HAS_CUDA)
    target_link_libraries(${target} PUBLIC k3_cuda_kernels)
    target_include_directories(${target} SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
    target_compile_definitions(${target} PRIVATE K3_WITH_CUDA)
  endif()
endfunction()

if(NOT K3_CUDA)
  return()
endif()
find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT NVCC)
  message(FATAL_ERROR "K3_CUDA is on but nvcc is not there; install the CUDA toolkit or configure with -DK3_CUDA=OFF")
endif()
set(CMAKE_CUDA_COMPILER ${NVCC})
set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "sm_80 and newer run the plain kernels, sm_90a the Hopper ones")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # the one that torch loads
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
if(cuda_sources)
  add_library(k3_cuda_kernels STATIC ${cuda_sources})
  target_include_directories(k3_cuda_kernels PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(k3_cuda_kernels PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall>)
endif()
