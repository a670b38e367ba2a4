"""`vllm bench serve` and `roundhouse bench`, one after the other on the same server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.h200_generation.engines import REPOSITORY, error_line, fork, read_log
from benchmarks.h200_generation.programs.engine import bench_serve

SECONDS = 120.0
TTFT_MS, TPOT_MS = 400, 8
"""Of an answer that counts in the goodput: 16 answers at once have 200 and 5.2."""


def vllm_numbers(port: int, checkpoint: str, log: Path, load: Mapping[str, int]) -> dict[str, Any]:
    """Return the numbers of `vllm bench serve`. Raises ValueError when it fails."""
    result = log.with_suffix(".json")
    arguments = {
        "backend": "openai",
        "base-url": f"http://127.0.0.1:{port}",
        "endpoint": "/v1/completions",
        "model": checkpoint,
        "served-model-name": "chat",
        "dataset-name": "random",
        "random-input-len": load["input"],
        "random-output-len": load["output"],
        "num-prompts": load["requests"],
        "max-concurrency": load["at_once"],
        "num-warmups": load["at_once"],
        "seed": load["seed"],
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "result-filename": result,
    }
    words = [f"--{name}={value}" for name, value in arguments.items()]
    flags = ["--ignore-eos", "--save-result", "--disable-tqdm"]
    flags += ["--goodput", f"ttft:{TTFT_MS}", f"tpot:{TPOT_MS}"]
    process = fork(bench_serve, [*words, *flags], str(log))
    process.join(SECONDS)
    process.kill()
    if not result.is_file():
        raise ValueError(f"vllm bench serve: {error_line(read_log(log))}")
    found = json.loads(result.read_text(encoding="utf-8"))
    rates = ("completed", "duration", "request_goodput", "output_throughput")
    times = ("mean_ttft_ms", "median_ttft_ms", "mean_itl_ms", "median_itl_ms", "mean_tpot_ms")
    return {name: found[name] for name in (*rates, *times)}


def our_numbers(port: int, load: Mapping[str, int]) -> dict[str, Any]:
    """Return the metrics of `roundhouse bench`. Raises ValueError when it fails."""
    command = (
        *(sys.executable, "-m", "roundhouse", "bench", "--model", "chat", "--format", "json"),
        *("--url", f"http://127.0.0.1:{port}/v1/completions"),
        *("--lengths", f"{load['input']}:{load['output']}", "--seed", str(load["seed"])),
        *("--concurrency", str(load["at_once"]), "--requests", str(load["requests"])),
        *("--ttft", str(TTFT_MS), "--itl", str(TPOT_MS)),
    )
    result = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if '"phases"' not in result.stdout:
        raise ValueError(f"roundhouse bench: {error_line(result.stderr + result.stdout)}")
    phase: dict[str, Any] = json.loads(result.stdout)["phases"][0]
    return phase
