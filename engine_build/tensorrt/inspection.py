"""Reads TensorRT's engine inspector: the JSON that trtexec --exportLayerInfo writes, both majors.

TensorRT 10 lists the names of inputs and outputs under `Bindings`; a second and further
optimization profile repeat them as "name [profile 1]". TensorRT 11 lists them as objects under
`I/O Tensors`, with mode, type and the profiles' shapes. Layers are objects when the plan was built
with detailed verbosity, else bare names. Sources: NVIDIA's migration page of IEngineInspector for
10 to 11, and the inspector files of trt-engine-explorer at v10.16. No file of these two releases
was seen whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine_build.errors import NetworkRefused

PROFILE = re.compile(r" \[profile (\d+)\]$")
TYPES = ("Format/Datatype", "DataType", "Datatype", "Format")
MOVING = frozenset({"Reformat", "NoOp", "Quantize", "Dequantize", "Scale"})
"""Layer types that bring INT8 values somewhere, and compute nothing with them."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """One plan."""

    tensors: tuple[str, ...]
    """Inputs and outputs."""
    inputs: tuple[str, ...] | None
    outputs: tuple[str, ...] | None
    """None where the file does not tell inputs from outputs: TensorRT 10."""
    profiles: int | None
    """Optimization profiles; None where the file does not tell."""
    layers: int
    """Of the first optimization profile."""
    int8_layers: int
    """Layers that read INT8 and compute. A fused kernel that only turns INT8 into float is among
    them, so this may be too many;
    0 is certain where no layer is opaque."""
    opaque_layers: int
    """Parts of the network that TensorRT's other compiler took whole, and whose kernels the
    inspector does not list.
    """


def inspection(text: str) -> Inspection:
    """Reads the inspector's JSON. Raises NetworkRefused when it is not that, or lists no layer."""
    try:
        document = json.loads(text)
        layers = [layer for layer in document["Layers"] if _profile_of(_layer_name(layer)) == 0]
        if "I/O Tensors" in document:
            return _of_11(document["I/O Tensors"], layers)
        return _of_10(document["Bindings"], layers)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NetworkRefused(
            f"the inspector's account of the plan cannot be read ({type(error).__name__}: {error})."
        ) from error


def _of_10(bindings: list[str], layers: list[Any]) -> Inspection:
    last = max(map(_profile_of, bindings), default=0)
    return Inspection(
        tensors=tuple(name for name in bindings if _profile_of(name) == 0),
        inputs=None,
        outputs=None,
        profiles=None if last == 0 else last + 1,
        **_layer_counts(layers),
    )


def _of_11(tensors: list[dict[str, Any]], layers: list[Any]) -> Inspection:
    modes = {tensor["Name"]: tensor["IOMode"].lower() for tensor in tensors}
    shaped = [
        len(item["ProfileInfo"])
        for item in tensors
        if item["IOMode"].lower() == "input" and item.get("ProfileInfo")
    ]
    return Inspection(
        tensors=tuple(modes),
        inputs=tuple(name for name, mode in modes.items() if mode == "input"),
        outputs=tuple(name for name, mode in modes.items() if mode == "output"),
        profiles=max(shaped, default=None),
        **_layer_counts(layers),
    )


def _layer_counts(layers: list[Any]) -> dict[str, int]:
    detailed = [layer for layer in layers if isinstance(layer, dict)]
    return {
        "layers": len(layers),
        "int8_layers": sum(map(_is_int8, detailed)),
        "opaque_layers": sum(map(_is_opaque, detailed)),
    }


def _is_opaque(layer: dict[str, Any]) -> bool:
    return layer.get("LayerType") == "Myelin" or layer["Name"].startswith("{ForeignNode[")


def _is_int8(layer: dict[str, Any]) -> bool:
    if layer.get("LayerType") in MOVING or layer.get("ParameterType") in MOVING:
        return False
    weights = layer.get("Weights")
    types = [weights.get("Type", "")] if isinstance(weights, dict) else []
    return any(
        "int8" in kind.lower().split() for kind in [*types, *_input_types(layer)]
    ) or "i8i8" in layer.get("TacticName", "")


def _input_types(layer: dict[str, Any]) -> Iterator[str]:
    for tensor in layer.get("Inputs", []):
        yield from (str(tensor[name]) for name in TYPES if name in tensor)


def _layer_name(layer: Any) -> str:
    return str(layer["Name"]) if isinstance(layer, dict) else str(layer)


def _profile_of(name: str) -> int:
    found = PROFILE.search(name)
    return 0 if found is None else int(found[1])
