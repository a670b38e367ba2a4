"""Output tokens a second of a checkpoint and of its source, on this machine's GPU.

Both are run by vLLM in the interpreter that ROUNDHOUSE_VLLM_PYTHON names, in rounds: in each, one
process after the other loads one of them and generates batches (vllm_speed.py), first the source,
in the next round first the checkpoint, so that spells of other load reach both. Where no
interpreter is named, or the machine has no GPU, nothing is measured, and the planner's estimate
stands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from engine_build.log import Log
from engine_build.machine import description
from engine_build.runner import Command, Ended
from engine_build.workload import Tools
from onboarding.text_generation.checkpoint_key import kv_cache
from onboarding.text_generation.checkpoint_lock import SpeedRecord, SpeedRound
from onboarding.text_generation.spec import TextGenerationSpec

MODULE = "engine_build.text_generation.vllm_speed"
ROUNDS, LEAST_ROUNDS = 3, 2
"""Of fewer nobody knows how far rounds lie apart."""
SECONDS = 1800.0
"""For all rounds, loading and compiling included: the checkpoint is made, and not uploaded yet."""
# FlashInfer's sampler is compiled by nvcc, which the image lacks; answers are greedy.
VARIABLES = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
CPU_VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def gpu_name(count: int) -> str | None:
    """Return what so many GPUs of this machine are, and free memory that torch keeps of them.

    None: there is none. vLLM refuses a GPU whose memory is taken.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    torch.cuda.empty_cache()
    name = str(torch.cuda.get_device_name(0))
    return name if count == 1 else f"{count} x {name}"


def measure_speed(
    spec: TextGenerationSpec,
    folders: tuple[Path, Path],
    tensor_parallel: int,
    tools: Tools,
    *,
    gpu: Callable[[int], str | None] = gpu_name,
    clock: Callable[[], float] = time.monotonic,
) -> SpeedRecord | None:
    """Return the medians of the rounds of a checkpoint and its source that end in time.

    `folders`: the source's, then the checkpoint's. None where this machine cannot measure, vLLM
    does not run the checkpoint, or too few rounds end.
    """
    log, python, (source, checkpoint) = tools.log, tools.settings.vllm_python, folders
    name = None if python is None else gpu(tensor_parallel)
    if python is None or (name is None and not tools.settings.speed_on_cpu):
        log.line("  not measured: this machine has no GPU with vLLM; the plan's estimate stands")
        return None
    rounds: list[SpeedRound] = []
    end = clock() + SECONDS
    engine, has_reference = "", True
    for number in range(ROUNDS):
        rates: dict[Path, float | None] = {}
        for folder in folders if number % 2 == 0 else folders[::-1]:
            if (folder == checkpoint or has_reference) and clock() < end:
                request = _request(
                    spec, folder, tensor_parallel, folder == checkpoint, name is None
                )
                command = Command(
                    argv=(python, "-m", MODULE, json.dumps(request)),
                    timeout_seconds=end - clock(),
                    variables={**VARIABLES, **(CPU_VARIABLES if name is None else {})},
                )
                rates[folder], version = _tokens_per_second(tools.runner.run(command), log)
                engine = version or engine
        if clock() >= end:
            log.line(f"  {SECONDS:g} seconds are over after {len(rounds)} rounds")
            break
        mine, reference = rates[checkpoint], rates.get(source)
        if mine is None or (reference is None and has_reference and number > 0):
            log.line("  not measured: vLLM does not run it here; its log says why")
            return None
        # A source that is too large for this GPU is tried once.
        has_reference = reference is not None
        rounds.append(
            SpeedRound(output_tokens_per_second=mine, reference_tokens_per_second=reference)
        )
        log.line(f"  round {number + 1}: {_rate_text(mine)}, its source {_rate_text(reference)}")
    if len(rounds) < LEAST_ROUNDS:
        log.line("  not measured; the plan's estimate stands")
        return None
    references = [item.reference_tokens_per_second for item in rounds]
    return SpeedRecord(
        output_tokens_per_second=median(item.output_tokens_per_second for item in rounds),
        reference_tokens_per_second=median(filter(None, references)) if has_reference else None,
        rounds=tuple(rounds),
        concurrency=spec.slo.concurrency,
        instance_type_or_machine=description() if name is None else name,
        engine=engine,
    )


def _tokens_per_second(ended: Ended, log: Log) -> tuple[float | None, str | None]:
    """Return the median of one process's batches, and the engine's version."""
    rates = ended.report.get("output_tokens_per_second")
    if ended.code != 0:
        log.line(f"  vLLM {ended.how}: {ended.last_error}")
    elif not rates:
        log.line("  vLLM ended without a report")
    else:
        return median(rates), f"vllm {ended.report['vllm']}"
    return None, None


def _request(
    spec: TextGenerationSpec, folder: Path, tensor_parallel: int, is_ours: bool, on_cpu: bool
) -> Mapping[str, Any]:
    """Return what vllm_speed is asked: the plan's arguments, the source's KV cache in 16 bits."""
    serving, context = spec.serving, spec.context
    values = {
        "model": str(folder),
        "max_model_len": context.max_model_len,
        "max_num_seqs": spec.slo.concurrency,
        "max_num_batched_tokens": serving.max_num_batched_tokens,
        "tensor_parallel_size": tensor_parallel,
        "gpu_memory_utilization": None if on_cpu else serving.gpu_memory_utilization,
        "kv_cache_dtype": kv_cache(spec) if is_ours else None,
        "trust_remote_code": True if spec.source.trust_remote_code else None,
        "enforce_eager": True if on_cpu else None,
        "enable_prefix_caching": False,
    }
    return {
        "engine": {name: value for name, value in values.items() if value is not None},
        "prompt_tokens": context.mean_prompt,
        "output_tokens": context.mean_output,
        "concurrency": spec.slo.concurrency,
    }


def _rate_text(rate: float | None) -> str:
    return "not measured" if rate is None else f"{rate:.1f} output tokens/s"
