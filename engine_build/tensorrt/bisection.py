"""Finds the first layer whose output differs between an engine and the network it is compiled from.

The network is cut behind a tensor, compiled as the engine was, run on a few samples and compared
with ONNX Runtime. A binary search goes over the outputs of normalisations and residual sums first,
then over the tensors between the last one that is equal and the first one that differs. A cut has
one output: further outputs change what TensorRT fuses, and cure the fault (docs/decisions). A fault
that needs what lies behind the cut is not found; then the search says where it ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.external_data import load_model, load_network, save_model
from engine_build.ort import OrtNetwork
from engine_build.quantization.layers import node_name
from engine_build.tensorrt.graph_types import outer_reads, tensor_types

LONGEST_SECONDS = 300.0
TOLERANCE = 0.1
"""Relative to the norm of the network's values; INT8 and FP16 kernels that are right differ by
less."""
SAMPLES = 8
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16)
NORMALISATIONS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization")
BETWEEN = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Reshape", "Transpose")
"""Operators whose outputs say no more than their inputs do."""
OUTPUT = "cut"

EngineRows = Callable[[Path, Feed, float], Array]
"""Compiles a network within some seconds, and returns its rows. Raises NetworkRefused."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where an engine's values leave its network's."""

    node: str | None
    """The first node whose output differs; None where that of no cut does."""
    after: str | None
    """The last node whose output is equal; None for the network's inputs."""
    engine: float = 0.0
    network: float = 0.0
    error: float = 0.0
    """Of the whole output, relative to the norm of the network's; inf where the engine's is NaN or
    Inf."""
    cuts: int
    seconds: float
    stopped: str | None = None
    """Why the search ended before it was done."""

    def __str__(self) -> str:
        after = "the inputs" if self.after is None else f"the output of {self.after}"
        search = f"{self.cuts} cuts, {self.seconds:.0f} seconds"
        end = "" if self.stopped is None else f"; the search stopped there: {self.stopped}"
        if self.node is None:
            return (
                f"No layer's output differs where the network is cut behind it ({search}): the "
                f"fault lies behind {after}, or in a kernel that only the whole network has{end}."
            )
        first = "the first one" if self.stopped is None else "one"
        size = "" if np.isinf(self.error) else f", {self.error:.0%} of the whole apart"
        return (
            f"The output of node {self.node} is {first} that differs: {self.engine:.5g} in the "
            f"engine, {self.network:.5g} in the network{size}; {after} is equal ({search}){end}."
        )


def first_difference(
    network: Path,
    feed: Feed,
    engine_rows: EngineRows,
    folder: Path,
    *,
    seconds: float = LONGEST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Difference:
    """Return the first difference of an engine that is known to differ at its outputs.

    `feed` is one batch; cuts are written to `folder`.
    """
    model = load_model(network)
    cuts = _Cuts(model, feed, engine_rows, folder, seconds, clock)
    points = cut_points(model, feed)
    landmarks = [index for index, point in enumerate(points) if point.is_landmark]
    begin, end = 0, len(points)
    for indices in (landmarks, None):
        chosen = list(range(begin, end)) if indices is None else indices
        low, high = bisect_points([points[index].tensor for index in chosen], cuts)
        begin = chosen[low] + 1 if low >= 0 else begin
        end = chosen[high] if high < len(chosen) else end
        if cuts.stopped is not None:
            break
    first = first_of_its_branch(points[end], points, cuts) if end < len(points) else None
    values = (0.0, 0.0, 0.0) if first is None else cuts.values[first.tensor]
    if first is not None and cuts.stopped is None:
        begin = 1 + max(
            (index for index in range(end) if points[index].tensor in first.sources), default=-1
        )
    return Difference(
        node=None if first is None else first.node,
        after=points[begin - 1].node if begin else None,
        engine=values[0],
        network=values[1],
        error=values[2],
        cuts=len(cuts.values),
        seconds=cuts.elapsed,
        stopped=cuts.stopped,
    )


def bisect_points(tensors: Sequence[str], differs: Callable[[str], bool | None]) -> tuple[int, int]:
    """Return neighbours of which the first is equal and the second differs.

    -1 stands for the inputs, which are equal, the number of tensors for the outputs, which differ.
    Where `differs` gives None the search ends, and they are no neighbours.
    """
    low, high = -1, len(tensors)
    while high - low > 1:
        middle = (low + high) // 2
        is_different = differs(tensors[middle])
        if is_different is None:
            break
        low, high = (low, middle) if is_different else (middle, high)
    return low, high


def first_of_its_branch(
    point: CutPoint, points: Sequence[CutPoint], differs: Callable[[str], bool | None]
) -> CutPoint:
    """Return the point itself, or one before it that differs while all that it reads is equal.

    A search over the graph's order may pass by a branch that ends in the point.
    """
    while True:
        sources = [source for source in points if source.tensor in point.sources]
        before = next((source for source in sources if differs(source.tensor)), None)
        if before is None:
            return point
        point = before


@dataclass(frozen=True, kw_only=True)
class CutPoint:
    """A tensor behind which a network may be cut."""

    tensor: str
    node: str
    is_landmark: bool
    """An output of a normalisation, or of the sum of two activations."""
    sources: frozenset[str]
    """Tensors of the points that it is computed from, with none between."""


def cut_points(model: onnx.ModelProto, feed: Feed) -> list[CutPoint]:
    """Return the float tensors that have a row for each sample, in the graph's order."""
    types = tensor_types(model)
    sources = {name: frozenset[str]() for name in feed}
    given = {output.name for output in model.graph.output}
    points = []
    for node in model.graph.node:
        inputs = [name for name in (*node.input, *outer_reads(node)) if name in sources]
        if not inputs:
            continue
        before = frozenset().union(*(sources[name] for name in inputs))
        sources.update(dict.fromkeys(node.output, before))
        name = node.output[0]
        if node.op_type in BETWEEN or types.get(name) not in FLOATS or name in given:
            continue
        is_sum = node.op_type == "Add" and len(inputs) == 2
        is_landmark = is_sum or node.op_type in NORMALISATIONS
        points.append(
            CutPoint(tensor=name, node=node_name(node), is_landmark=is_landmark, sources=before)
        )
        sources[name] = frozenset((name,))
    outputs = len(model.graph.output)
    model.graph.output.extend(onnx.ValueInfoProto(name=point.tensor) for point in points)
    values = load_network(model, fuses_qdq=False).values([point.tensor for point in points], feed)
    del model.graph.output[outputs:]
    rows = next(iter(feed.values())).shape[:1]
    return [point for point in points if values[point.tensor].shape[:1] == rows]


def cut_network(model: onnx.ModelProto, tensor: str) -> onnx.ModelProto:
    """Return the part of a network that computes a tensor, its one output, in FP32."""
    needed, nodes = {tensor}, []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update((*node.input, *outer_reads(node)))
            nodes.append(node)
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    graph = result.graph
    graph.name = model.graph.name
    graph.node.extend(reversed(nodes))
    graph.node.append(helper.make_node("Cast", [tensor], [OUTPUT], name=OUTPUT, to=FLOATS[0]))
    graph.input.extend(value for value in model.graph.input if value.name in needed)
    graph.initializer.extend(weight for weight in model.graph.initializer if weight.name in needed)
    graph.output.append(helper.make_tensor_value_info(OUTPUT, FLOATS[0], None))
    return result


@dataclass
class _Cuts:
    """Compares cuts until the time is over."""

    model: onnx.ModelProto
    feed: Feed
    engine_rows: EngineRows
    folder: Path
    limit: float
    clock: Callable[[], float]
    values: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """By tensor: the engine's and the network's value where they differ most, and the error."""
    stopped: str | None = None
    _longest: float = 0.0

    def __post_init__(self) -> None:
        self._begin = self.clock()

    @property
    def elapsed(self) -> float:
        return self.clock() - self._begin

    def __call__(self, tensor: str) -> bool | None:
        """Tell whether the engine of a cut differs; None where that cannot be told."""
        if tensor in self.values:
            return self.values[tensor][2] > TOLERANCE
        begin = self.elapsed
        if begin + self._longest > self.limit:
            self.stopped = f"another cut would end after {self.limit:.0f} seconds"
            return None
        path = self.folder / "network.onnx"
        save_model(cut_network(self.model, tensor), path)
        expected = OrtNetwork(path, fuses_qdq=False).rows(self.feed)
        try:
            found = self.engine_rows(path, self.feed, self.limit - begin)
        except NetworkRefused as error:
            self.stopped = f"the network cut behind {tensor} has no engine ({error})"
            return None
        self.values[tensor] = compare(found, expected)
        self._longest = max(self._longest, self.elapsed - begin)
        return self.values[tensor][2] > TOLERANCE


def compare(found: Array, expected: Array) -> tuple[float, float, float]:
    """Return both values where they differ most, and the relative error of the whole.

    inf where what is found is NaN or Inf; what is not finite in `expected` is left out.
    """
    finite = np.isfinite(expected)
    gap = np.where(finite, np.abs(found - np.where(finite, expected, 0)), 0)
    gap = np.where(np.isnan(gap), np.inf, gap)
    index = np.unravel_index(gap.argmax(), gap.shape)
    norm = float(np.linalg.norm(expected[finite]))
    error = float(np.linalg.norm(gap)) / max(norm, float(np.finfo(np.float32).tiny))
    return float(found[index]), float(expected[index]), error
