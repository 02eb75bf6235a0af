# The CUDA backend of the engine, included by engine/CMakeLists.txt where a toolkit was found.
set(BATON_ENGINE_CUDA_KERNELS
  ops/cuda/kernels/activation.cu
  ops/cuda/kernels/add.cu
  ops/cuda/kernels/attention.cu
  ops/cuda/kernels/attention_decode.cu
  ops/cuda/kernels/attention_merge.cu
  ops/cuda/kernels/attention_plan.cu
  ops/cuda/kernels/attention_prefill.cu
  ops/cuda/kernels/dequantize.cu
  ops/cuda/kernels/experts.cu
  ops/cuda/kernels/grouped_matmul.cu
  ops/cuda/kernels/qkv_rope.cu
  ops/cuda/kernels/quantized_matmul.cu
  ops/cuda/kernels/rms_norm.cu
  ops/cuda/kernels/rope_angles.cu
  ops/cuda/kernels/rows.cu
  ops/cuda/kernels/sample.cu
  ops/cuda/kernels/softcap.cu)
baton_cuda_kernels(engine_kernels SOURCES ${BATON_ENGINE_CUDA_KERNELS})

# What calls the kernels, cuBLASLt and the CUDA runtime: plain C++, linked with either build of the
# kernels.
set(BATON_ENGINE_CUDA_SOURCES
  ops/cuda/activations.cc
  ops/cuda/attention_plans.cc
  ops/cuda/cuda_backend.cc
  ops/cuda/cuda_ops.cc
  ops/cuda/cuda_sampling.cc
  ops/cuda/cuda_step.cc
  ops/cuda/cuda_weights.cc
  ops/cuda/device_matrix.cc
  ops/cuda/matmul.cc
  ops/cuda/matmul_library.cc
  ops/cuda/memory_budget.cc
  ops/cuda/nccl_communicator.cc
  ops/cuda/rank_link.cc
  ops/cuda/rope_tables.cc
  ops/cuda/step_buffers.cc
  ops/cuda/step_graphs.cc
  ops/cuda/weight_uploader.cc)
baton_library(engine_cuda
  SOURCES ${BATON_ENGINE_CUDA_SOURCES}
  DEPS PUBLIC baton::engine baton::gpu)
