# The CPU backend of the engine, included by engine/CMakeLists.txt.
set(BATON_ENGINE_CPU_KERNELS
  ops/cpu/attention_tile.cc
  ops/cpu/float_tile.cc
  ops/cpu/integer_tile.cc
  ops/cpu/rows.cc
  ops/cpu/smooth.cc)
set(BATON_ENGINE_CPU_SOURCES
  ops/cpu/activation_buffer.cc
  ops/cpu/append_kv.cc
  ops/cpu/attention.cc
  ops/cpu/cpu_ops.cc
  ops/cpu/cpu_weights.cc
  ops/cpu/expert_routing.cc
  ops/cpu/mlp.cc
  ops/cpu/ordered_input.cc
  ops/cpu/packed_matrix.cc
  ops/cpu/rank_link.cc
  ops/cpu/residual_sum.cc
  ops/cpu/unpacked_group.cc
  ops/cpu/weight_memory.cc
  threads/thread_pool.cc
  ${BATON_ENGINE_CPU_KERNELS})
set(BATON_ENGINE_CPU_DEPS hwy::hwy)

# Kernels live on complete unrolling, whatever the build type; Ice Lake's target is off by default
# in Highway 1.0; every CPU has SSE4 that has SSSE3 and would be fast enough for a model.
if(BATON_SANITIZE)
  # Instrumented and unrolled for every target, one kernel takes the compiler ten minutes; two targets
  # and no unrolling check the same code.
  set(BATON_ENGINE_CPU_KERNEL_OPTIONS "-O1")
  set(BATON_ENGINE_CPU_KERNEL_TARGETS
      "HWY_WANT_AVX3_DL;HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3)")
else()
  set(BATON_ENGINE_CPU_KERNEL_OPTIONS "-O3")
  set(BATON_ENGINE_CPU_KERNEL_TARGETS "HWY_WANT_AVX3_DL;HWY_DISABLED_TARGETS=HWY_SSSE3")
endif()
set_source_files_properties(${BATON_ENGINE_CPU_KERNELS} PROPERTIES
  COMPILE_OPTIONS "${BATON_ENGINE_CPU_KERNEL_OPTIONS}"
  COMPILE_DEFINITIONS "${BATON_ENGINE_CPU_KERNEL_TARGETS}")
