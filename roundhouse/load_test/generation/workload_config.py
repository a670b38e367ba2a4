"""A load test's workload as SageMaker's AIWorkloadConfig, for its managed benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onboarding.text_generation.spec import TextGenerationSpec
from roundhouse.aws.shapes import require_valid
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.load_test.generation.lengths import LogNormal
from roundhouse.load_test.generation.options import GenerationOptions
from roundhouse.load_test.generation.subject import generator_spec, workload
from roundhouse.paths import Paths, displayed_path

OPERATION = "CreateAIWorkloadConfig"
MAX_CONCURRENCY_FACTOR = 8
"""Of the SLO's concurrency: where the managed search ends."""
MAX_ITERATIONS = 15


def workload_config(
    name: str, options: GenerationOptions, spec: TextGenerationSpec
) -> dict[str, Any]:
    """Return the request of CreateAIWorkloadConfig. Raises RoundhouseError.

    AIPerf draws lengths from normal distributions: mean and deviation are ours, the long tail of a
    log-normal is not there. Without a load it searches, as `bench` does, for the most requests at
    once whose 95th percentiles hold the SLO.
    """
    requests = workload(options, spec)
    if requests.lengths is None:
        raise UsageError(
            "--export-workload and --input: SageMaker reads prompts from S3 (DatasetConfig); "
            "give --lengths, or neither for the model file's."
        )
    parameters: dict[str, Any] = {
        "model": spec.name,
        "streaming": spec.slo.streaming,
        "random_seed": options.seed,
        **_tokens("prompt_input_tokens", requests.lengths.prompt),
        **_tokens("output_tokens", requests.lengths.output),
        "extra_inputs": "ignore_eos:true",
    }
    if spec.source.huggingface is not None:
        parameters["tokenizer"] = spec.source.huggingface.partition("@")[0]
    if options.requests is not None:
        parameters["request_count"] = options.requests
    parameters |= _load(options, spec)
    document = {
        "benchmark": {"type": "aiperf"},
        "parameters": parameters,
    }
    inline = json.dumps(document, sort_keys=True)
    return {
        "AIWorkloadConfigName": name,
        "AIWorkloadConfigs": {"WorkloadSpec": {"Inline": inline}},
    }


def _tokens(name: str, lengths: LogNormal) -> dict[str, int]:
    return {f"{name}_mean": round(lengths.mean), f"{name}_stddev": round(lengths.deviation)}


def _load(options: GenerationOptions, spec: TextGenerationSpec) -> dict[str, Any]:
    if options.rate is not None:
        return {"request_rate": options.rate}
    if options.concurrency:
        return {"concurrency": list(options.concurrency)}
    slo = spec.slo
    return {
        "search_recipe": "max-concurrency-under-sla",
        "ttft_sla_ms": slo.ttft_p95_ms if options.ttft is None else options.ttft,
        "tpot_sla_ms": slo.itl_p95_ms if options.itl is None else options.itl,
        "search_stat": "p95",
        "concurrency_min": 1,
        "concurrency_max": MAX_CONCURRENCY_FACTOR * slo.concurrency,
        "search_max_iterations": MAX_ITERATIONS,
    }


def export_workload(paths: Paths, options: GenerationOptions, file: Path) -> str:
    """Write the request as JSON and return a sentence about it. Raises RoundhouseError."""
    name = options.endpoint if options.url is None else options.model
    if name is None:
        raise UsageError("--export-workload: needs a text generator of the tree; name it.")
    spec = generator_spec(paths, name, options.env)
    request = workload_config(name, options, spec)
    require_valid(OPERATION, "input_shape", request)
    try:
        file.write_text(json.dumps(request, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise RoundhouseError(
            f"--export-workload {file}: {error.strerror}; give a file that can be written."
        ) from error
    return (
        f"{displayed_path(file.resolve())}: aws sagemaker create-ai-workload-config "
        f"--cli-input-json file://{file}"
    )
