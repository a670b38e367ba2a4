#!/bin/sh
# The steps of a run on a machine with an NVIDIA GPU, in the repository's root:
# `sh benchmarks/h200/steps.sh compile|prepare|slo|servers|runtimes FOLDER [OUT]`.
# compile fills the cache of torch.compile in the background; prepare unpacks FOLDER/part-* and
# writes the archives. Each program writes its JSON into OUT after every step.
set -eu
step=$1
folder=$2
out=${3:-$2/out}
export PYTHONPATH="$folder/site" PYTHONUNBUFFERED=1
mkdir -p "$folder/site" "$out"

case $step in
compile)
  setsid nohup python3 -m benchmarks.runtimes "$folder" /dev/null --compile-only \
    > "$folder/compile.log" 2>&1 &
  ;;
prepare)
  cat "$folder"/part-* | tar xJ -C "$folder"
  for model in bert-large-512 vit minilm; do
    python3 -m benchmarks.runtimes.archive $model "$folder" > "$folder/$model.log" 2>&1 &
  done
  wait
  python3 -m benchmarks.runtimes.archive bert-large "$folder"
  tail -n 3 "$folder"/*.log
  ;;
slo)
  python3 -m benchmarks.h200.slo "$folder" "$out/slo-h200.json"
  ;;
servers)
  for model in bert-large minilm; do
    python3 -m benchmarks.h200.experiment "$folder" $model "$out" --processes 1,4 --rounds 2 || true
  done
  ;;
runtimes)
  LD_LIBRARY_PATH=$(python3 -c "from benchmarks.runtimes.servers import server_environment as e
print(e()['LD_LIBRARY_PATH'])")
  export LD_LIBRARY_PATH
  python3 -m benchmarks.runtimes "$folder" "$out/runtimes-h200.json" --seconds 20 --load-seconds 2
  ;;
esac
