# GPU code. Kernels (.cu) are compiled twice: by g++ for the host emulation that the tests run them
# in (tests/cuda_emulation), and by nvcc for devices. Host code that calls CUDA is plain C++, compiled
# once, and links with either.
#
# BATON_CUDA_ROOT  a toolkit with cuBLASLt and NCCL; scripts/get_cuda.sh finds or fetches one
# BATON_KERNEL_COVERAGE  counts the lines of kernels that the emulation runs (scripts/kernel_coverage.sh)
# BATON_CUDA       links the CUDA backend into `baton`; needs nvcc
# Sets BATON_CUDA_FOUND (headers: the emulation can be built) and BATON_NVCC (the real build can).
set(BATON_CUDA_ROOT "$ENV{BATON_CUDA_ROOT}" CACHE PATH "Root of a CUDA toolkit")
option(BATON_KERNEL_COVERAGE "Count executed lines of emulated kernels" OFF)
option(BATON_CUDA "Link the CUDA backend into baton" OFF)
set(BATON_CUDA_ARCHITECTURES "80;90" CACHE STRING "Device architectures; the last also as PTX")

set(BATON_CUDA_HINTS ${BATON_CUDA_ROOT} /usr/local/cuda)
find_path(BATON_CUDA_INCLUDE cublasLt.h HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(BATON_NCCL_INCLUDE nccl.h HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES include)
find_program(BATON_NVCC nvcc HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES bin)
if(BATON_CUDA_INCLUDE AND BATON_NCCL_INCLUDE AND NOT BATON_FUZZ)
  set(BATON_CUDA_FOUND ON)
else()
  set(BATON_CUDA_FOUND OFF)
  message(STATUS "No CUDA toolkit with NCCL: the GPU path and its tests are left out (scripts/get_cuda.sh)")
endif()
if(BATON_CUDA AND NOT (BATON_CUDA_FOUND AND BATON_NVCC))
  message(FATAL_ERROR "BATON_CUDA needs nvcc, cuBLASLt and NCCL; set BATON_CUDA_ROOT to a toolkit, "
                      "or run scripts/get_cuda.sh, which fetches one")
endif()
if(NOT BATON_CUDA_FOUND)
  return()
endif()

add_library(baton_cuda_headers INTERFACE)
add_library(baton::cuda_headers ALIAS baton_cuda_headers)
target_include_directories(baton_cuda_headers SYSTEM INTERFACE ${BATON_CUDA_INCLUDE} ${BATON_NCCL_INCLUDE})

# How kernels are compiled for the host: 16-byte loads of types that are not what lies there, as on
# the device.
set(BATON_EMULATED_KERNEL_OPTIONS
  -mavx2 -mfma -mf16c -fno-strict-aliasing -Wno-unknown-pragmas -Wno-pedantic)

# baton_cuda_kernels(NAME SOURCES a.cu ...): the kernels of a folder.
#   baton::NAME_emulated  compiled by g++, links the emulation
#   baton::NAME_device    compiled by nvcc, links the CUDA runtime; where nvcc was found
# nvcc's figures for each kernel (registers, spills, shared memory) lie in <source>.ptxas beside the
# object; tests/gpu checks them.
function(baton_cuda_kernels name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  foreach(source IN LISTS ARG_SOURCES)
    list(APPEND paths ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  set_source_files_properties(${paths} PROPERTIES LANGUAGE CXX)
  add_library(baton_${name}_emulated STATIC ${paths})
  add_library(baton::${name}_emulated ALIAS baton_${name}_emulated)
  target_link_libraries(baton_${name}_emulated PUBLIC baton_options baton::gpu baton::cuda_emulation)
  target_compile_definitions(baton_${name}_emulated PRIVATE BATON_CUDA_EMULATION)
  target_compile_options(baton_${name}_emulated PRIVATE -x c++ ${BATON_EMULATED_KERNEL_OPTIONS})
  if(BATON_KERNEL_COVERAGE)
    target_compile_options(baton_${name}_emulated PRIVATE --coverage)
    target_link_options(baton_${name}_emulated PUBLIC --coverage)
  endif()
  if(NOT BATON_NVCC)
    return()
  endif()

  set(flags -std=c++20 -O3 --expt-relaxed-constexpr -Xptxas -v -lineinfo -I ${PROJECT_SOURCE_DIR} -I ${BATON_NCCL_INCLUDE})
  foreach(architecture IN LISTS BATON_CUDA_ARCHITECTURES)
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET BATON_CUDA_ARCHITECTURES -1 newest)
  list(APPEND flags -gencode arch=compute_${newest},code=compute_${newest})
  foreach(source IN LISTS ARG_SOURCES)
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${stem}.device.o)
    add_custom_command(
      OUTPUT ${object} ${object}.ptxas
      COMMAND ${PROJECT_SOURCE_DIR}/scripts/nvcc.sh ${object} ${BATON_NVCC} ${flags}
              -MD -MF ${object}.d -MT ${object} -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${PROJECT_SOURCE_DIR}/scripts/nvcc.sh
      DEPFILE ${object}.d
      COMMENT "Compiling ${source} for devices" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_library(baton_${name}_device STATIC ${objects})
  add_library(baton::${name}_device ALIAS baton_${name}_device)
  set_target_properties(baton_${name}_device PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(baton_${name}_device PUBLIC baton_options baton::gpu baton::cuda_libraries)
endfunction()

if(BATON_NVCC)
  find_library(BATON_CUDART libcudart_static.a HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES lib64 lib REQUIRED NO_DEFAULT_PATH)
  find_library(BATON_CUBLASLT cublasLt HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES lib64 lib REQUIRED NO_DEFAULT_PATH)
  find_library(BATON_NCCL nccl HINTS ${BATON_CUDA_HINTS} PATH_SUFFIXES lib64 lib REQUIRED)
  # Never libcuda: a binary that links it does not start without a driver.
  add_library(baton_cuda_libraries INTERFACE)
  add_library(baton::cuda_libraries ALIAS baton_cuda_libraries)
  target_link_libraries(baton_cuda_libraries INTERFACE
    ${BATON_CUDART} ${BATON_CUBLASLT} ${BATON_NCCL} Threads::Threads dl rt)
endif()

# baton_cuda_test(NAME SOURCES a_test.cc ... DEPS baton::x ... KERNELS engine_kernels ... [LABELS l] [TIMEOUT s])
#   NAME         the kernels in the host emulation; a ctest entry per case, label cuda
#   NAME_device  the same cases on a real GPU, where nvcc was found; not in ctest and not in `all`:
#                the target device_tests builds them, tests/gpu/run.sh runs them
function(baton_cuda_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;KERNELS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  foreach(kernels IN LISTS ARG_KERNELS)
    list(APPEND emulated baton::${kernels}_emulated)
    list(APPEND device baton::${kernels}_device)
  endforeach()
  baton_test(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} ${emulated}
             LABELS cuda ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
  if(NOT BATON_NVCC)
    return()
  endif()
  add_executable(${name}_device EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name}_device PRIVATE baton_options ${ARG_DEPS} ${device} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name}_device PRIVATE BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${name}_device PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/device_tests)
  if(NOT TARGET device_tests)
    add_custom_target(device_tests)
  endif()
  add_dependencies(device_tests ${name}_device)
endfunction()
