"""Environment variables of the container that a plan fixes, and what of them a file may set."""

from __future__ import annotations

import json
from collections.abc import Mapping

from onboarding.text_generation.adapter import engine_rank
from onboarding.text_generation.cuda_graphs import GRAPH_ARGUMENT
from onboarding.text_generation.platforms import argument_flags
from onboarding.text_generation.spec import Argument, TextGenerationSpec

VLLM_PREFIX = "SM_VLLM_"
RESERVED_PREFIXES = (VLLM_PREFIX, "OPTION_", "SERVING_", "SAGEMAKER_")
"""Of environment variables that the plan alone sets, or that other images read."""
RESERVED_VARIABLES = (
    "STANDARD_AUTO_INSTALL_REQ",
    "HF_MODEL_ID",
    "VLLM_API_KEY",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
)
PLANNED = {
    "model": "source",
    "revision": "source.huggingface",
    "trust_remote_code": "source.trust_remote_code",
    "served_model_name": "name",
    "tensor_parallel_size": "serving.tensor_parallel",
    "max_model_len": "context.max_model_len",
    "kv_cache_dtype": "quantization.kv_cache",
    "gpu_memory_utilization": "serving.gpu_memory_utilization",
    "max_num_seqs": "serving.max_num_seqs",
    "max_num_batched_tokens": "serving.max_num_batched_tokens",
    "max_num_queued_reqs": "serving.max_num_queued_reqs",
    "speculative_config": "serving.speculative",
    "spec_method": "serving.speculative",
    "spec_model": "serving.speculative",
    "spec_tokens": "serving.speculative",
    "enable_lora": "serving.adapters",
    "max_loras": "serving.adapters",
    "max_lora_rank": "serving.adapters",
    "lora_modules": "serving.adapters",
}
"""Arguments with a key of their own in the file."""
PARALLEL = (
    "pipeline_parallel_size",
    "data_parallel_size",
    "data_parallel_size_local",
    "prefill_context_parallel_size",
    "decode_context_parallel_size",
    "nnodes",
    "device_ids",
)
"""Arguments that take more GPUs than the tensor parallel size, or cut the cache otherwise."""
ROUTED = (
    "host",
    "port",
    "uds",
    "middleware",
    "root_path",
    "ssl_keyfile",
    "ssl_certfile",
    "api_key",
    "headless",
    "grpc",
)
"""Arguments that SageMaker's routes depend on: with others, or a key, vLLM does not answer them."""


def engine_arguments(
    spec: TextGenerationSpec, tensor_parallel: int, graphs: int | None
) -> dict[str, Argument]:
    """Return the engine's arguments by vLLM's names with underscores; no quantization is set.

    `graphs`: what `planned_graph_tokens` says.
    """
    serving = spec.serving
    found: dict[str, Argument | None] = {
        "served_model_name": spec.name,
        "tensor_parallel_size": tensor_parallel,
        "max_model_len": spec.context.max_model_len,
        "gpu_memory_utilization": serving.gpu_memory_utilization,
        "kv_cache_dtype": "fp8" if spec.quantization.kv_cache == "fp8" else "auto",
        "max_num_seqs": serving.max_num_seqs,
        "max_num_batched_tokens": serving.max_num_batched_tokens,
        "max_num_queued_reqs": serving.max_num_queued_reqs,
        "trust_remote_code": True if spec.source.trust_remote_code else None,
        GRAPH_ARGUMENT: graphs,
    }
    if serving.speculative is not None:
        guess: dict[str, object] = {
            "method": serving.speculative.method.replace("-", "_"),
            "num_speculative_tokens": serving.speculative.tokens,
        }
        found["speculative_config"] = json.dumps(guess, separators=(",", ":"))
    if serving.adapters:
        found |= {
            "enable_lora": True,
            "max_loras": len(serving.adapters),
            "max_lora_rank": engine_rank(adapter.rank for adapter in serving.adapters),
        }
    set_ones = {name: value for name, value in found.items() if value is not None}
    return set_ones | dict(serving.arguments)


def container_environment(
    spec: TextGenerationSpec, tensor_parallel: int, engine_version: str | None, graphs: int | None
) -> Mapping[str, str]:
    """Return the container's environment: the engine's arguments, and the file's variables.

    AWS's vLLM images read SM_VLLM_X as --x, and leave one out that is false: it becomes --no-x.
    """
    flags = argument_flags(engine_version)
    values = {
        f"{VLLM_PREFIX}{'NO_' * is_off}{name.upper()}": "true" if is_off else _text(value)
        for name, value in engine_arguments(spec, tensor_parallel, graphs).items()
        for is_off in (value is False and name in flags,)
    }
    fixed = {"STANDARD_AUTO_INSTALL_REQ": "false"}
    if spec.serving.adapters:
        # SageMaker loads each adapter's component by a request to the running server.
        fixed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "true"
    return {**values, **fixed, **spec.serving.environment}


def _text(value: Argument) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
