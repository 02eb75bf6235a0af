#!/usr/bin/env bash
# Installs foreign clients into build/clients and runs them against a cluster on the tiny model.
#
# usage: tests/clients/run.sh BATON_BINARY [python|node]...   (default: both)
#
# Exits with 1 when a test fails or a client cannot be installed, with 77 (skipped) when a client is
# not installed and BATON_NO_DOWNLOAD=1 forbids to fetch it.
set -euo pipefail

binary=$(realpath "${1:?usage: run.sh BATON_BINARY [python|node]...}")
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
installed=${BATON_CLIENTS_DIR:-$root/build/clients}
model=${BATON_MODELS_DIR:-$root/models}/tiny/target
mkdir -p "$installed"

# may_install NAME PIN_FILE...: false when what the pins name is installed already. Exits with 77
# where it would have to be fetched and must not.
may_install() {
  local name=$1
  shift
  pins=$(cat "$@" | sha256sum)
  [ "$(cat "$installed/$name.pins" 2>/dev/null)" != "$pins" ] || return 1
  rm -f "$installed/$name.pins"
  if [ "${BATON_NO_DOWNLOAD:-}" = 1 ]; then
    echo "SKIPPED: the $name clients are not installed and BATON_NO_DOWNLOAD=1 is set" >&2
    exit 77
  fi
  echo "Installing the $name clients into $installed"
}

cannot_install() {
  echo "FAILED: cannot install $1 (see above); is the registry reachable?" >&2
  echo "BATON_NO_DOWNLOAD=1 skips the foreign clients instead." >&2
  exit 1
}

# Two builds' tests may run at once: one installs, the other waits.
exec 9>"$installed/lock"

install_python() {
  may_install python "$here/requirements.txt" || return 0
  rm -rf "$installed/venv"
  python3 -m venv "$installed/venv" || cannot_install "a Python venv"
  "$installed/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    --only-binary :all: -r "$here/requirements.txt" || cannot_install "openai from PyPI"
  echo "$pins" >"$installed/python.pins"
}

install_node() {
  if ! command -v npm >/dev/null; then
    echo "FAILED: no npm; run scripts/install_packages.sh scripts/packages-node.txt" >&2
    exit 1
  fi
  may_install node "$here/package.json" "$here/package-lock.json" || return 0
  mkdir -p "$installed/node"
  cp "$here/package.json" "$here/package-lock.json" "$installed/node/"
  (cd "$installed/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
    cannot_install "openai and @grpc/grpc-js from npm"
  echo "$pins" >"$installed/node.pins"
}

beside_cluster() {
  python3 "$here/local_cluster.py" "$binary" "$model" "$@"
}

failed=()
for kind in "${@:-python node}"; do
  for client in $kind; do
    flock 9
    "install_$client"
    flock -u 9
    case $client in
      python)
        beside_cluster "$installed/venv/bin/python" "$here/openai_client_test.py" ||
          failed+=("openai (PyPI)")
        ;;
      node)
        # One after the other: each reads the cluster's metrics.
        for file in openai_client_test grpc_client_test; do
          NODE_PATH=$installed/node/node_modules beside_cluster \
            node --test "$here/$file.js" || failed+=("$file.js")
        done
        ;;
    esac
  done
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
