"""The layers that TensorRT-RTX compiles a network into, from its builder's verbose log.

The log lists each layer on one line: "Name: …, LayerType: gemm, Inputs: [ { Name: …, Datatype:
Int8, … } ], Constants: …". What a layer multiplies stands among its inputs and constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LINE = re.compile(
    r"^\s*Name: (?P<name>.*?), LayerType: (?P<kind>\w+), Inputs: (?P<inputs>.*?)"
    r"(?:, Constants: .*)?, Outputs: ",
    re.MULTILINE,
)
DATATYPE = re.compile(r"Datatype: (\w+)")
MEMORY = re.compile(r"Total Activation Memory: (\d+) bytes")
PRODUCTS = ("gemm", "correlation", "convolution", "runtime_fusion")
"""Types of layers that multiply by weights; a fused attention of two activations is a kgen."""
REFORMATS = ("reformat", "Reformat")
BOOKKEEPING = ("shape_call", "ShapeHostToDevice", "signal", "wait")
"""Types of layers that run on the host, copy shapes, or order streams."""
MIB = 1024 * 1024


@dataclass(kw_only=True)
class LayerLog:
    """Collects what a verbose log says about layers, and counts them."""

    kinds: list[tuple[str, bool]] = field(default_factory=list)
    """Of each layer its type, and True where an input is INT8."""
    activation_bytes: int = 0

    def read(self, message: str) -> None:
        """Take one message of the builder's; most say nothing of layers."""
        if "LayerType: " in message:
            self.kinds += _layers(message)
        elif match := MEMORY.search(message):
            self.activation_bytes = int(match[1])

    def counts(self) -> dict[str, Any] | None:
        """Return onboarding.manifest.CompiledLayersRecord's fields; None without layers."""
        layers = [(kind, int8) for kind, int8 in self.kinds if kind not in BOOKKEEPING]
        if not layers:
            return None
        products = [int8 for kind, int8 in layers if kind in PRODUCTS]
        return {
            "layers": len(layers),
            "products": len(products),
            "int8_products": sum(products),
            "reformats": sum(kind in REFORMATS for kind, _ in layers),
            "activation_mib": round(self.activation_bytes / MIB, 1),
        }


def _layers(message: str) -> Iterable[tuple[str, bool]]:
    for match in LINE.finditer(message):
        yield match["kind"], "Int8" in DATATYPE.findall(match["inputs"])
