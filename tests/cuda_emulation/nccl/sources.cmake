# NCCL over sockets of the loopback.
set(nccl_sources bootstrap.cc communicator.cc group.cc lifecycle.cc memory.cc operations.cc reduce.cc
  socket.cc split.cc transfer.cc)
list(TRANSFORM nccl_sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
target_sources(baton_cuda_emulation PRIVATE ${nccl_sources})
