"""The key of a checkpoint: a digest of all that decides its files, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from onboarding.keys import digest
from onboarding.text_generation.checkpoint import Checkpoint
from onboarding.text_generation.platforms import quantizer_routes, quantizer_tools, schemes
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.text_generation.weights import count_weights

RECIPE_VERSION = 1
"""Raised by hand when the same inputs must give other bytes."""
UNCHANGED = ("bf16", "fp16")
"""Schemes that compute nothing: the source's own tensors, at most cast to 16 bits."""
CHECKPOINTS = "checkpoints"
"""The folder of the bucket with published checkpoints; only the signer may write there."""
LONG_PROMPTS = 8
"""Prompts of `context.prompt_p95` tokens on which an FP8 KV cache is judged."""
KvCache = Literal["auto", "fp8"]


def checkpoint_prefix(key: str) -> str:
    """Return where the files of a checkpoint lie in the environment's bucket."""
    return f"{CHECKPOINTS}/{key}/"


def checkpoint_schemes(spec: TextGenerationSpec, already: str | None = None) -> tuple[str, ...]:
    """Return the schemes of a model's checkpoints: those to try, or the one that it has already."""
    return tuple(spec.quantization.schemes) if already is None else (already,)


def is_gated(spec: TextGenerationSpec, scheme: str, already: str | None = None) -> bool:
    """Return True where a checkpoint is compared with its source: weights or KV cache change."""
    return kv_cache(spec) == "fp8" or scheme not in (*UNCHANGED, already)


def kv_cache(spec: TextGenerationSpec) -> KvCache:
    """Return the format of cached keys and values that scales are made for; auto: 16 bits."""
    return "fp8" if spec.quantization.kv_cache == "fp8" else "auto"


CALIBRATION_FILE = "quantization.calibration.dataset"
EVALUATION_FILE = "quantization.evaluation.dataset"
TASK_FILE = "quantization.budget.task.file"


def dataset_files(spec: TextGenerationSpec) -> dict[str, str]:
    """Return the files that quantization and its gate read, under the onboarding root, by key."""
    quantization = spec.quantization
    calibration, task = quantization.calibration, quantization.budget.task
    named = {
        CALIBRATION_FILE: None if calibration is None else calibration.dataset,
        EVALUATION_FILE: quantization.evaluation.dataset,
        TASK_FILE: None if task is None else task.file,
    }
    return {key: file for key, file in named.items() if file is not None}


def dataset_paths(spec: TextGenerationSpec) -> tuple[str, ...]:
    """Return these files, each once."""
    return tuple(dict.fromkeys(dataset_files(spec).values()))


def generator_paths(spec: TextGenerationSpec) -> tuple[str, ...]:
    """Return every file and folder of the onboarding root that a text generator names."""
    named = (
        *dataset_paths(spec),
        spec.source.checkpoint,
        spec.source.headers,
        *(adapter.source for adapter in spec.serving.adapters),
    )
    return tuple(dict.fromkeys(path for path in named if path is not None and "://" not in path))


def checkpoint_key(
    spec: TextGenerationSpec, scheme: str, dataset_digests: Mapping[str, str]
) -> str:
    """Return the key of the checkpoint of a model in one scheme, 20 hex digits.

    It holds source, name, scheme, KV cache and tool versions; of a checkpoint that is compared with
    its source also the calibration and the budget, which decide its verdict. `dataset_digests` maps
    each of `dataset_paths` to the sha256 of its bytes.
    """
    inputs: dict[str, Any] = {
        "recipe": RECIPE_VERSION,
        "name": spec.name,
        "source": _source(spec),
        "scheme": scheme,
        "kv_cache": kv_cache(spec),
        "tools": dict(quantizer_tools()),
    }
    if is_gated(spec, scheme):
        quantization = spec.quantization
        fields = quantization.model_dump(mode="json", exclude={"schemes", "kv_cache"})
        fields["evaluation"]["long_prompts"] = LONG_PROMPTS
        digests = {path: dataset_digests[path] for path in dataset_paths(spec)}
        inputs["quantization"] = _with_digests(fields, digests)
    if kv_cache(spec) == "fp8":
        inputs["long_prompt_tokens"] = spec.context.prompt_p95
    return digest(inputs)


def _with_digests(fields: Any, digests: Mapping[str, str]) -> Any:
    """Return nested fields with each dataset's digest in place of its path."""
    if isinstance(fields, Mapping):
        return {name: _with_digests(value, digests) for name, value in fields.items()}
    return digests.get(fields, fields) if isinstance(fields, str) else fields


def _source(spec: TextGenerationSpec) -> dict[str, Any]:
    source = spec.source
    if source.checkpoint is not None and source.sha256 is not None:
        # A folder is its digest, wherever it lies.
        return {"checkpoint": source.sha256, "path": source.path}
    return source.model_dump(mode="json", exclude={"checkpoint", "headers", "trust_remote_code"})


QUANTIZER: Literal["quantizer"] = "quantizer"
"""The CodeBuild project on CPUs."""
QUANTIZER_JOB: Literal["quantizer-job"] = "quantizer-job"
"""A SageMaker training job on the instance type of the plan."""
QUANTIZER_IMAGE = "builder-quantizer"
QuantizerRoute = Literal["quantizer", "quantizer-job"]
GIB = 1 << 30


def quantizer_route(
    spec: TextGenerationSpec, scheme: str, checkpoint: Checkpoint
) -> QuantizerRoute:
    """Return where a model's checkpoint is built in one scheme.

    One that is compared with its source is run, so its parameters decide; of others the bytes,
    which lie on the machine's disk twice.
    """
    limits = quantizer_routes()
    if is_gated(spec, scheme, checkpoint.scheme):
        parameters = count_weights(checkpoint, schemes()["bf16"], 1).parameters
        is_small = parameters <= limits.gated_cpu_parameters
    else:
        is_small = checkpoint.bytes <= limits.copied_cpu_gib * GIB
    return QUANTIZER if is_small else QUANTIZER_JOB
