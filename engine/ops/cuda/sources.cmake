# The CUDA backend of the engine, included by engine/CMakeLists.txt where a toolkit was found.
set(BATON_ENGINE_CUDA_KERNELS
  ops/cuda/kernels/rms_norm.cu)
baton_cuda_kernels(engine_kernels SOURCES ${BATON_ENGINE_CUDA_KERNELS})
