"""Feeds for a network about which nothing is known but its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.errors import InputRefused
from engine_build.samples.feed import ATTENTION_MASK, Array, Feed, Shape

FIXED = {ATTENTION_MASK: 1, "token_type_ids": 0}
FEWEST_TOKENS = 100
"""Token numbers stay below this: every vocabulary has as many."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a network; -1 is a dynamic axis: the first is the batch, any other the sequence."""

    name: str
    type: Any
    """numpy's."""
    shape: tuple[int, ...]


def network_inputs(path: Path) -> tuple[Input, ...]:
    """The inputs of an ONNX file; its weights are not read."""
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:
        raise InputRefused(
            f"{path} is no ONNX file that can be read ({' '.join(str(error).split())[:200]})."
        ) from error
    weights = {weight.name for weight in graph.initializer}
    return tuple(_input(value) for value in graph.input if value.name not in weights)


def text_inputs(names: Sequence[str]) -> tuple[Input, ...]:
    """The inputs of a text model: int64, batch and sequence dynamic."""
    return tuple(Input(name=name, type=np.dtype(np.int64), shape=(-1, -1)) for name in names)


def random_feed(inputs: Sequence[Input], shape: Shape) -> Feed:
    """Seeded values of every input: normal floats, small token numbers, masks of ones."""
    random = np.random.default_rng(0)
    return {each.name: _values(each, _sizes(each, shape), random) for each in inputs}


def _sizes(each: Input, shape: Shape) -> tuple[int, ...]:
    rest = [shape.sequence if size < 0 else size for size in each.shape[1:]]
    if any(size is None for size in rest):
        raise InputRefused(
            f"input {each.name} has a sequence axis; give shapes as BATCHxSEQUENCE, such as 8x64."
        )
    return (shape.batch, *(size for size in rest if size is not None))


def _values(each: Input, sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    values: Array
    if each.type.kind == "f":
        values = random.standard_normal(sizes)
    elif each.name in FIXED:
        values = np.full(sizes, FIXED[each.name])
    else:
        values = random.integers(0, 2 if each.type.kind == "b" else FEWEST_TOKENS, size=sizes)
    return values.astype(each.type)


def _input(value: Any) -> Input:
    import onnx

    tensor = value.type.tensor_type
    sizes = tuple(
        int(axis.dim_value) if axis.HasField("dim_value") else -1 for axis in tensor.shape.dim
    )
    return Input(
        name=value.name,
        type=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
        shape=sizes,
    )
