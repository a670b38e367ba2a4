"""Checkpoints that were quantized before: what their config.json says of it.

The keys are those of compressed-tensors, as llm-compressor writes them for the recipes of
engine_build.text_generation.recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FP8_WEIGHT = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
FP8_TOKEN = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True}
INT8_WEIGHT = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
INT8_TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True}
INT4_WEIGHT = {
    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True,
}  # fmt: skip
FORMATS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any] | None]] = {
    "fp8": ("float-quantized", FP8_WEIGHT, FP8_TOKEN),
    "int8": ("int-quantized", INT8_WEIGHT, INT8_TOKEN),
    "gptq": ("pack-quantized", INT4_WEIGHT, None),
    "w4a8-fp8": ("pack-quantized", INT4_WEIGHT, FP8_TOKEN),
}
"""By scheme: the form of the files, weights, activations; AWQ's files have the form of GPTQ's."""


def quantization_config(scheme: str) -> dict[str, Any]:
    """Return `quantization_config` of a scheme of `FORMATS`."""
    form, weights, activations = FORMATS[scheme]
    group = {
        "targets": ["Linear"],
        "format": form,
        "weights": {**weights, "dynamic": False},
        "input_activations": activations and {**activations, "dynamic": True},
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }
