# The CPU backend of the engine, included by engine/CMakeLists.txt.
set(BATON_ENGINE_CPU_KERNELS
  ops/cpu/attention_tile.cc
  ops/cpu/float_tile.cc
  ops/cpu/integer_tile.cc
  ops/cpu/rows.cc)
set(BATON_ENGINE_CPU_SOURCES
  ops/cpu/attention.cc
  ops/cpu/cpu_ops.cc
  ops/cpu/packed_matrix.cc
  ops/cpu/weight_memory.cc
  threads/thread_pool.cc
  ${BATON_ENGINE_CPU_KERNELS})
set(BATON_ENGINE_CPU_DEPS hwy::hwy)

# Kernels live on complete unrolling, whatever the build type; Ice Lake's target is off by default
# in Highway 1.0; every CPU has SSE4 that has SSSE3 and would be fast enough for a model.
set_source_files_properties(${BATON_ENGINE_CPU_KERNELS} PROPERTIES
  COMPILE_OPTIONS "-O3"
  COMPILE_DEFINITIONS "HWY_WANT_AVX3_DL;HWY_DISABLED_TARGETS=HWY_SSSE3")
