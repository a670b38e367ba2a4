"""Environment variables of the container that a plan fixes, and what of them a file may set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onboarding.text_generation.adapter import engine_rank
from onboarding.text_generation.platforms import Gpu, argument_flags
from onboarding.text_generation.spec import Argument, TextGenerationSpec
from onboarding.text_generation.weights import PLAIN_ARCHITECTURES

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
GRAPH_ARGUMENT, VLLM_GRAPH_TOKENS, GRAPH_TOKENS = "max_cudagraph_capture_size", 512, 2048
"""Most tokens of a step that CUDA graphs hold: the argument, vLLM's own value, and a plan's."""
OTHER_GRAPH_ARGUMENTS = (
    "cudagraph_capture_sizes",
    "compilation_config",
    "optimization_level",
    "performance_mode",
    "enforce_eager",
)
"""With one of these in the file a plan sets none: vLLM refuses two that contradict each other."""
FAST_GPU_GIB, LEFT_GIB = 70, 8
"""A plan sets its own on GPUs of so much memory, where the engine leaves so much for graphs."""


def planned_graph_tokens(
    spec: TextGenerationSpec, config: Mapping[str, Any], gpu: Gpu | None
) -> int | None:
    """Return the most tokens of a CUDA graph that a plan sets; None: it leaves them to vLLM.

    A step of more tokens waits for the CPU that launches it, where the GPU is fast: on an H200
    graphs of 2,048 tokens gain an 8B model in FP8 a quarter more tokens a second within its SLO
    for 0.7 GiB (docs/benchmarks). Only for plain architectures, without adapters or speculation:
    of others nobody measured the graphs' memory.
    """
    serving = spec.serving
    is_set = any(name in serving.arguments for name in (GRAPH_ARGUMENT, *OTHER_GRAPH_ARGUMENTS))
    is_plain = config.get("model_type") in PLAIN_ARCHITECTURES
    if is_set or not is_plain or serving.adapters or serving.speculative is not None:
        return None
    memory = 0 if gpu is None else gpu.memory_gib or 0
    leaves_enough = memory * (1 - serving.gpu_memory_utilization) >= LEFT_GIB
    return GRAPH_TOKENS if memory >= FAST_GPU_GIB and leaves_enough else None


def graph_tokens(spec: TextGenerationSpec, config: Mapping[str, Any], gpu: Gpu | None) -> int:
    """Return the most tokens of a step that CUDA graphs hold: the file's, the plan's or vLLM's."""
    serving = spec.serving
    if serving.arguments.get("enforce_eager") is True:
        return 0
    found = serving.arguments.get(GRAPH_ARGUMENT)
    if found is not None and str(found).isdigit():
        return int(found)
    planned = planned_graph_tokens(spec, config, gpu)
    if planned is not None:
        return planned
    guessed = 0 if serving.speculative is None else serving.speculative.tokens
    sequences = serving.max_num_seqs
    return min(VLLM_GRAPH_TOKENS, 2 * (sequences or VLLM_GRAPH_TOKENS) * (1 + guessed))


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
