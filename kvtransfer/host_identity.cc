#include "kvtransfer/host_identity.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace baton::kvtransfer {
namespace {

std::string ReadLink(const char* path) {
  std::array<char, 256> target;
  const ssize_t size = readlink(path, target.data(), target.size());
  return size > 0 ? std::string(target.data(), size) : std::string();
}

}  // namespace

HostIdentity ReadHostIdentity() {
  HostIdentity identity;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, identity.boot_id);
  identity.ipc_namespace = ReadLink("/proc/self/ns/ipc");
  identity.mount_namespace = ReadLink("/proc/self/ns/mnt");
  return identity;
}

bool SameHost(const HostIdentity& a, const HostIdentity& b) {
  return a == b && !a.boot_id.empty() && !a.ipc_namespace.empty() && !a.mount_namespace.empty();
}

}  // namespace baton::kvtransfer
