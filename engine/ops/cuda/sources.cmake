# The CUDA backend of the engine, included by engine/CMakeLists.txt where a toolkit was found.
set(BATON_ENGINE_CUDA_KERNELS
  ops/cuda/kernels/activation.cu
  ops/cuda/kernels/add.cu
  ops/cuda/kernels/attention.cu
  ops/cuda/kernels/attention_decode.cu
  ops/cuda/kernels/attention_merge.cu
  ops/cuda/kernels/attention_plan.cu
  ops/cuda/kernels/attention_prefill.cu
  ops/cuda/kernels/embed.cu
  ops/cuda/kernels/experts.cu
  ops/cuda/kernels/qkv_rope.cu
  ops/cuda/kernels/rms_norm.cu
  ops/cuda/kernels/rope_angles.cu
  ops/cuda/kernels/rows.cu
  ops/cuda/kernels/sample.cu
  ops/cuda/kernels/softcap.cu)
baton_cuda_kernels(engine_kernels SOURCES ${BATON_ENGINE_CUDA_KERNELS})
