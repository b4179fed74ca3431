# Finds the torch wheel through the Python that the launcher names (K3_PYTHON) and links its C++ libraries directly:
# find_package(Torch) of a CUDA wheel demands a full CUDA toolkit, which running the CPU parts does not need.
set(K3_PYTHON "" CACHE FILEPATH "Python whose torch is used; empty: .venv of the checkout, then python3")
if(NOT K3_PYTHON)
  if(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    set(K3_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "" FORCE)
  else()
    find_program(python3 python3 REQUIRED)
    set(K3_PYTHON ${python3} CACHE FILEPATH "" FORCE)
  endif()
endif()

# Importing torch takes seconds, so its answer is kept in the cache.
if(NOT K3_TORCH_DIR)
  execute_process(
    COMMAND ${K3_PYTHON} -W ignore -c "import os, torch; print(os.path.dirname(torch.__file__)); print(torch.__version__); print(int(torch._C._GLIBCXX_USE_CXX11_ABI)); print(torch.version.cuda or '')"
    OUTPUT_VARIABLE torch_answer RESULT_VARIABLE torch_failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(torch_failed)
    message(FATAL_ERROR "torch does not import in ${K3_PYTHON}; run ./k3, which installs it, or set -DK3_PYTHON=...")
  endif()
  string(REPLACE "\n" ";" torch_answer "${torch_answer};")
  list(GET torch_answer 0 dir)
  list(GET torch_answer 1 version)
  list(GET torch_answer 2 abi)
  list(GET torch_answer 3 cuda)
  if(version VERSION_LESS 2.11)
    message(FATAL_ERROR "torch ${version} is too old; k3 needs 2.11 or newer")
  endif()
  set(K3_TORCH_DIR ${dir} CACHE PATH "" FORCE)
  set(K3_TORCH_VERSION ${version} CACHE STRING "" FORCE)
  set(K3_TORCH_ABI ${abi} CACHE STRING "" FORCE)
  set(K3_TORCH_CUDA "${cuda}" CACHE STRING "" FORCE)
endif()
message(STATUS "torch ${K3_TORCH_VERSION} in ${K3_TORCH_DIR}")

set(K3_TORCH_HAS_CUDA OFF)
if(K3_TORCH_CUDA)
  find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NVCC OR EXISTS /dev/nvidiactl)
    set(K3_TORCH_HAS_CUDA ON)
  else()  # loading torch_cuda takes more than a second at every start
    message(STATUS "torch has CUDA ${K3_TORCH_CUDA}, but there is neither nvcc nor a GPU: linked without it")
  endif()
endif()

add_library(torch_libraries INTERFACE)
# After the system's headers: the wheel brings its own copy of fmt, which must not shadow the one that this project links.
target_compile_options(torch_libraries INTERFACE "SHELL:-idirafter ${K3_TORCH_DIR}/include")
target_compile_definitions(torch_libraries INTERFACE _GLIBCXX_USE_CXX11_ABI=${K3_TORCH_ABI})
target_link_directories(torch_libraries INTERFACE ${K3_TORCH_DIR}/lib)
# libtorch_cpu.so exports its own copy of std::filesystem; with another gcc its remove_all crashes. libstdc++ goes first, so every call finds the
# right one; by its path, because g++ moves -lstdc++ to the end.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so.6 OUTPUT_VARIABLE libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
target_link_libraries(torch_libraries INTERFACE ${libstdcxx})
target_link_options(torch_libraries INTERFACE -Wl,-rpath,${K3_TORCH_DIR}/lib)
if(K3_TORCH_HAS_CUDA)
  # torch_cuda registers its operators when it is loaded, so it must not be dropped as unused.
  target_link_libraries(torch_libraries INTERFACE -Wl,--no-as-needed torch_cuda c10_cuda -Wl,--as-needed torch torch_cpu c10)
else()
  target_link_libraries(torch_libraries INTERFACE torch torch_cpu c10)
endif()
