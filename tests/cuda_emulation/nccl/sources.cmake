target_sources(baton_cuda_emulation PRIVATE ${CMAKE_CURRENT_LIST_DIR}/nccl.cc)
