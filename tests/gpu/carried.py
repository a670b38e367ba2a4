"""Networks made of weights that the GPU machine has or makes anew: only what differs is carried.

A source's weights are NumPy's of a seed (networks.seeded), or those of a network in the bundle.
Another network's weight is the source's in another type, or the source's times a factor a row
(smoothing), over the scale, rounded; the difference, in bytes, is mostly zeros.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.gpu.networks import LARGE, weights

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Scale = tuple[Array, int]
"""Of a quantized weight, and the axis of its channels."""
NETWORK, MADE_OF, ROWS, BYTES = "network", "made of", "rows", "bytes"
SPREAD, SHAPE = "spread", "shape"
PRESET = 2
ALIKE = 0.5
"""The least correlation of a weight with what it is made of; others have about none."""
FP8_LARGEST = 448


def pack(target: Path, networks: Sequence[Path], feed: Arrays, source: Path, *, seed: bool) -> None:
    """Write networks and a feed into one file, and check that it gives the same networks.

    `seed`: the source's weights are NumPy's; else the GPU machine has the source itself.
    """
    known = {str(place): numpy_helper.to_array(item) for place, item in large(onnx.load(source))}
    arrays = dict(feed)
    for place, weight in list(known.items()) if seed else ():
        spread = _spread(int(place), weight)
        if np.array_equal(weights(int(place), spread, weight.shape), weight):
            arrays[f"{SPREAD}/{place}"] = spread
            arrays[f"{SHAPE}/{place}"] = np.array(weight.shape)
        else:
            del known[place]
    for path in networks:
        model, made_of = onnx.load(path), {}
        scales = _scales(model)
        for place, tensor in large(model):
            array, scale = numpy_helper.to_array(tensor), scales.get(tensor.name)
            like = next((key for key in known if _is_alike(array, known[key])), None)
            if like is not None:
                made_of[place] = like
                rows = None if scale is None else _rows(array, known[like], scale)
                difference = _bytes(array) - _rounded_bytes(known[like], rows, scale, array.dtype)
                parts = {ROWS: rows, BYTES: difference if difference.any() else None}
                for part, values in parts.items():
                    if values is not None:
                        arrays[f"{part}/{path.stem}/{place}"] = values
                tensor.ClearField("raw_data")
        arrays[f"{NETWORK}/{path.stem}"] = np.frombuffer(model.SerializeToString(), np.uint8)
        arrays[f"{MADE_OF}/{path.stem}"] = np.array(json.dumps(made_of))
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    target.write_bytes(lzma.compress(packed.getvalue(), preset=PRESET))
    again = Carried(target)
    if not seed:
        again.read_weights(source)
    for path in networks:
        assert again.network(path.stem) == onnx.load(path), path


class Carried:
    """What `pack` wrote."""

    def __init__(self, path: Path) -> None:
        with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
            everything: Arrays = dict(arrays)
        self._parts = {key: part for key, part in everything.items() if "/" in key}
        self.feed = {key: part for key, part in everything.items() if "/" not in key}
        """What `pack` was given as feed."""
        self.names = [key.split("/")[1] for key in self._parts if key.startswith(NETWORK)]
        seeds = {key.split("/")[1]: part for key, part in self._parts.items() if SPREAD in key}
        self._weights = {
            place: weights(int(place), spread, tuple(self._parts[f"{SHAPE}/{place}"]))
            for place, spread in seeds.items()
        }

    def read_weights(self, source: Path) -> None:
        """Read the weights of a source that were not made of a seed."""
        found = large(onnx.load(source))
        self._weights = {str(place): numpy_helper.to_array(item) for place, item in found}

    def network(self, name: str) -> onnx.ModelProto:
        """Return a network with its weights."""
        model = onnx.ModelProto.FromString(self._parts[f"{NETWORK}/{name}"].tobytes())
        scales = _scales(model)
        for place, like in json.loads(str(self._parts[f"{MADE_OF}/{name}"])).items():
            tensor = model.graph.initializer[int(place)]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            rows = self._parts.get(f"{ROWS}/{name}/{place}")
            made = _rounded_bytes(self._weights[like], rows, scales.get(tensor.name), dtype)
            tensor.raw_data = (made + self._parts.get(f"{BYTES}/{name}/{place}", 0)).tobytes()
        return model


def large(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.TensorProto]]:
    """Yield each initializer of many numbers, and its place."""
    for place, tensor in enumerate(model.graph.initializer):
        if np.prod(tensor.dims) > LARGE:
            yield place, tensor


def _scales(model: onnx.ModelProto) -> Mapping[str, Scale]:
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    scales = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and {*node.input[:2]} <= {*constants}:
            scale = numpy_helper.to_array(constants[node.input[1]]).astype(np.float32)
            axes = [item.i for item in node.attribute if item.name == "axis"]
            scales[node.input[0]] = (scale, axes[0] if axes else 1)
    return scales


def _is_alike(array: Array, weight: Array) -> bool:
    if array.shape != weight.shape:
        return False
    some = [item.reshape(-1)[:: max(1, item.size // LARGE)] for item in (array, weight)]
    return bool(np.corrcoef(*(item.astype(np.float32) for item in some))[0, 1] > ALIKE)


def _rows(array: Array, weight: Array, scale: Scale) -> Array:
    """Return the factor of each row: of the axis that is not the scale's."""
    values, row = array.astype(np.float32) * _beside(scale, array.ndim), 0 if scale[1] else 1
    axes = tuple(axis for axis in range(array.ndim) if axis != row)
    squares = np.maximum((weight * weight).sum(axes, keepdims=True), 1e-30)
    rows: Array = (values * weight).sum(axes, keepdims=True) / squares
    return np.ones_like(rows) if np.abs(rows - 1).max() < 0.02 else rows


def _rounded_bytes(weight: Array, rows: Array | None, scale: Scale | None, dtype: Any) -> Array:
    """Return the bytes of a weight in a type, or in eight bits by its rows' factors and scale."""
    if rows is None or scale is None:
        return _bytes(weight.astype(dtype))
    values = weight * rows / _beside(scale, weight.ndim)
    is_integer = np.dtype(dtype) == np.int8
    values = (
        np.rint(values).clip(-128, 127) if is_integer else values.clip(-FP8_LARGEST, FP8_LARGEST)
    )
    return _bytes(values.astype(dtype))


def _bytes(array: Array) -> Array:
    return np.frombuffer(array.tobytes(), np.uint8)


def _beside(scale: Scale, dimensions: int) -> Array:
    values, axis = scale
    shape = [1] * dimensions
    shape[axis if values.size > 1 else 0] = -1
    return values.reshape(shape)


def _spread(place: int, weight: Array) -> Array:
    """Return what NumPy's numbers were multiplied by."""
    axes = (1, 2, 3) if weight.ndim == 4 else None
    numbers = weights(place, np.ones(1, np.float32), weight.shape)
    spread = (weight * numbers).sum(axes, keepdims=True) / (numbers**2).sum(axes, keepdims=True)
    return np.float16(spread).astype(np.float32)
