"""How a number format is made by llm-compressor: its modifiers and what it needs of the texts.

RECIPE_VERSION of onboarding.text_generation.checkpoint_key is raised with every change that gives
other bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine_build.errors import InputRefused
from onboarding.text_generation.checkpoint import TensorHeader
from onboarding.text_generation.weights import is_linear

SMOOTHING_STRENGTH = 0.8
"""Share of an outlier that moves from activations into weights (SmoothQuant, section 4)."""
GROUP_SIZES = {
    **dict.fromkeys(("awq", "gptq"), (128, 64, 32)),
    "w4a8-fp8": (128,),
    "nvfp4": (16,),
    **dict.fromkeys(("mxfp4", "mxfp8"), (32,)),
}
"""Weights of a group by scheme, the cheapest first: those that vLLM's kernels take."""
KV_FP8 = {
    "num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True,
}  # fmt: skip
"""One scale a layer for keys and one for values, which vLLM reads as k_scale and v_scale."""
TOKEN_FP8 = {
    "num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True,
}  # fmt: skip
PACKED = "pack-quantized"
"""How vLLM reads INT4 weights beside FP8 activations; compressed-tensors would write INT8."""
OUTPUT_LAYER = "lm_head"
PRESETS = {"nvfp4": "NVFP4", "mxfp4": "MXFP4", "mxfp8": "MXFP8"}
CALIBRATED = frozenset({"int8", "awq", "gptq", "nvfp4", "w4a8-fp8", "fp8-static"})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One number format of one checkpoint.

    `kv_scales`: scales of an FP8 KV cache are calibrated and stored.
    """

    scheme: str
    static_activations: bool = False
    kv_scales: bool = False
    group_size: int | None = None

    @property
    def is_calibrated(self) -> bool:
        """True where texts go through the model to make it."""
        return self.scheme in CALIBRATED or self.static_activations or self.kv_scales


def recipe_of(
    scheme: str, kv_cache: str, *, has_texts: bool, tensors: Mapping[str, TensorHeader]
) -> Recipe:
    """Return the recipe of a scheme for a checkpoint's tensors.

    FP8 is static, with KV scales, where the KV cache is FP8 and there are texts to calibrate with;
    without them activations are scaled as they come. Raises InputRefused for layers that the
    format's groups do not divide.
    """
    scales = kv_cache == "fp8" and has_texts
    columns = {t.shape[-1] for name, t in tensors.items() if is_linear(name, t)}
    sizes = GROUP_SIZES.get(scheme, ())
    group = next((size for size in sizes if not any(c % size for c in columns)), None)
    if group is None and sizes:
        odd = next(size for size in sorted(columns) if size % sizes[-1])
        raise InputRefused(
            f"{scheme} stores groups of {sizes[-1]} weights, which do not divide a "
            f"layer of {odd} columns; choose fp8 or int8."
        )
    return Recipe(
        scheme=scheme,
        static_activations=scheme == "fp8" and scales,
        kv_scales=scales,
        group_size=group,
    )


def modifiers(recipe: Recipe) -> Sequence[Any]:
    """Return llm-compressor's modifiers of a recipe, in the order in which they run."""
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    options: dict[str, Any] = {"ignore": [OUTPUT_LAYER]}
    if recipe.kv_scales:
        options["kv_cache_scheme"] = dict(KV_FP8)
    if recipe.scheme == "int8":
        smooth = SmoothQuantModifier(smoothing_strength=SMOOTHING_STRENGTH)
        return (smooth, QuantizationModifier(scheme="W8A8", targets="Linear", **options))
    if recipe.scheme == "gptq":
        return (GPTQModifier(config_groups=_groups(recipe), **options),)
    if recipe.scheme == "w4a8-fp8":
        return (GPTQModifier(config_groups=_groups(recipe, TOKEN_FP8, PACKED), **options),)
    if recipe.scheme == "awq":
        quantize = QuantizationModifier(config_groups=_groups(recipe), **options)
        return (AWQModifier(), quantize)
    if recipe.scheme == "fp8":
        name = "FP8" if recipe.static_activations else "FP8_DYNAMIC"
        return (QuantizationModifier(scheme=name, targets="Linear", **options),)
    preset = PRESETS[recipe.scheme]
    return (QuantizationModifier(scheme=preset, targets="Linear", **options),)


def _groups(
    recipe: Recipe, activations: Mapping[str, Any] | None = None, form: str | None = None
) -> dict[str, Any]:
    """Return symmetric INT4 weights in groups; None: activations in 16 bits, any form of files."""
    weights = {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": recipe.group_size,
        "symmetric": True, "dynamic": False,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "format": form}
    if activations is not None:
        group["input_activations"] = dict(activations)
    return {"group_0": group}
