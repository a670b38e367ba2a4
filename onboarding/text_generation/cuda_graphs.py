"""How many tokens of a step vLLM's CUDA graphs hold: by the file, the plan, or vLLM itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onboarding.text_generation.platforms import Gpu
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.text_generation.weights import PLAIN_ARCHITECTURES

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
