# For TSan builds: shows TSan the locks of Abseil's shared library; tsan_mutex.cc says how and why.
# Whoever uses baton_options gets it.
add_library(baton_tsan_mutex STATIC ${CMAKE_CURRENT_LIST_DIR}/tsan_mutex.cc)
target_compile_options(baton_tsan_mutex PRIVATE -fsanitize=thread)
target_link_libraries(baton_tsan_mutex PUBLIC absl::synchronization absl::time)
target_link_libraries(baton_options INTERFACE baton_tsan_mutex)
foreach(symbol IN ITEMS
    _ZN4absl7debian35MutexD1Ev
    _ZN4absl7debian35Mutex4LockEv
    _ZN4absl7debian35Mutex6UnlockEv
    _ZN4absl7debian35Mutex7TryLockEv
    _ZN4absl7debian35Mutex10ReaderLockEv
    _ZN4absl7debian35Mutex12ReaderUnlockEv
    _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE
    _ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE
    _ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE
    _ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE
    _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
    _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
    _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE
    _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE
    _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
    _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE
    _ZN4absl7debian312Notification6NotifyEv
    _ZNK4absl7debian312Notification19WaitForNotificationEv
    _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE
    _ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE
    )
  target_link_options(baton_options INTERFACE LINKER:--wrap=${symbol})
endforeach()
# A program that locks no Mutex itself still links Abseil libraries whose calls are wrapped: take the
# wrappers in any case.
target_link_options(baton_options INTERFACE LINKER:--undefined=__wrap__ZN4absl7debian35Mutex4LockEv)
