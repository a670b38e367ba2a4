#!/bin/sh
# The steps of a run on a machine with an NVIDIA GPU and no package index, in the repository's root:
# `sh benchmarks/h200_generation/lease.sh unpack|run FOLDER [OUT STAGE…]`.
# unpack joins FOLDER/part-* into FOLDER/site; run writes OUT, and logs beside it.
set -eu
step=$1
folder=$2
shift 2
export PYTHONPATH="$folder/site" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 DO_NOT_TRACK=1
export VLLM_NO_USAGE_STATS=1 VLLM_CACHE_ROOT="$folder/cache" NCCL_NVLS_ENABLE=0
# FlashInfer is not packed.
export VLLM_USE_FLASHINFER_SAMPLER=0

case $step in
unpack)
  mkdir -p "$folder/site"
  cat "$folder"/part-* | tar xJ -C "$folder/site"
  rm "$folder"/part-*
  ;;
run)
  python3 -m benchmarks.h200_generation "$folder" "$@"
  ;;
esac
