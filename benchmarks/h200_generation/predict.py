"""`python -m benchmarks.h200_generation.predict OUT`: what the planner says of every case, as JSON.

Written before a run, and compared after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.h200_generation.shapes import (
    BF16,
    CACHES,
    CASES,
    CONFIGS,
    FP8,
    STORED,
    TOO_LARGE,
    Case,
    headers,
)
from benchmarks.measure import circumstances
from onboarding.text_generation.gpu_memory import GIB, gpu_memory
from onboarding.text_generation.kv_cache import cache_layers, cache_size
from onboarding.text_generation.platforms import gpus, schemes
from onboarding.text_generation.speed import Speed
from onboarding.text_generation.weights import count_weights

GPU, ENGINE_VERSION, UTILIZATION, STEP_TOKENS = "H200", "0.26.0", 0.92, 2 * 8192
INPUT, OUTPUT, BATCHES = 512, 128, (1, 16, 64, 256)


def prediction(case: Case) -> dict[str, Any]:
    """Return KV tokens, GiB and rates of a case on one H200; 0 tokens where the planner refuses."""
    checkpoint, scheme = headers(case.shape), schemes()[case.scheme]
    weights = count_weights(checkpoint, scheme, case.tensor_parallel)
    gpu = gpus()[GPU]
    memory = gpu_memory(weights, gpu, ENGINE_VERSION, UTILIZATION)
    assert memory is not None
    layers, kv_bytes = cache_layers(CONFIGS[case.shape]), 1 if case.kv == "fp8" else 2
    size = cache_size(
        layers,
        memory.cache_bytes,
        length=case.max_model_len,
        tensor_parallel=case.tensor_parallel,
        dtype_bytes=kv_bytes,
        step_tokens=STEP_TOKENS,
    )
    speed = Speed(
        gpu=gpu,
        weights=weights,
        layers=layers,
        scheme=scheme,
        kv_bytes=kv_bytes,
        tensor_parallel=case.tensor_parallel,
        mean_prompt=INPUT,
        mean_output=OUTPUT,
    )
    return {
        "kv_tokens": size.tokens if size.concurrency > 1 else 0,
        "weights_gib": round(weights.gpu_bytes / GIB, 3),
        "overhead_gib": memory.overhead_gib,
        "kv_gib": round(memory.cache_bytes / GIB, 3),
        "by_batch": {str(batch): round(batch / speed.token_seconds(batch), 1) for batch in BATCHES},
    }


def main(out: str) -> None:
    """Write the predictions of every case on an H200."""
    cases = (BF16, FP8, *STORED.values(), *CACHES, TOO_LARGE)
    assert all(case.name in CASES for case in cases)
    document = {
        "gpu": GPU,
        "engine_version": ENGINE_VERSION,
        "gpu_memory_utilization": UTILIZATION,
        "date": circumstances("").date,
        "cases": {case.name: prediction(case) for case in cases},
    }
    Path(out).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
