#pragma once
#include "kvtransfer/messages.h"

namespace baton::kvtransfer {

// Who this process shares a kernel, an IPC namespace and a file-system view with. Two processes
// with equal, non-empty identities can open each other's memory (if they are the same user). Fields
// that the system does not tell are empty.
HostIdentity ReadHostIdentity();

// True when `a` and `b` are known and equal.
bool SameHost(const HostIdentity& a, const HostIdentity& b);

}  // namespace baton::kvtransfer
