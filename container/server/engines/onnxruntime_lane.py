"""One shape of a network in ONNX Runtime: arrays of its own on the device, bound once, and run as
one recorded graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from container.server.engines.shaping import Part
from container.server.types import Array

GRAPH = "gpu_graph_id"
"""A run option: runs of one number are one CUDA graph."""
UNRECORDED = -1


class Lane:
    """Runs at one shape: inputs are copied to the same place each time, outputs come from the same
    place.
    """

    def __init__(
        self,
        session: Any,
        part: Part,
        *,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        device: str,
        graph: int | None,
    ) -> None:
        """Runs `part` once to see its outputs' shapes.

        `graph` numbers the CUDA graph; `None`: there is none.
        """
        self._session, self._on_cpu = session, device == "cpu"
        make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
        self._inputs = {
            name: make(list(shape), inputs[name], device, 0) for name, shape in part.shapes.items()
        }
        self._zeros = {name: np.zeros(shape, inputs[name]) for name, shape in part.shapes.items()}
        self._blank: set[str] = set()
        """Inputs that hold zeros on the device."""
        self._binding = session.io_binding()
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        shapes = self._shapes(part, tuple(outputs), device, None if graph is None else UNRECORDED)
        self._outputs = {
            name: make(list(shapes[name]), outputs[name], device, 0) for name in outputs
        }
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        self._options = run_options(graph)

    def run(self, part: Part) -> dict[str, Array]:
        """The part's own rows of every output."""
        self._send(part.feed)
        self._session.run_with_iobinding(self._binding, self._options)
        found = {name: value.numpy()[: part.rows] for name, value in self._outputs.items()}
        # From a GPU these are copies; on the CPU they are the very memory that the next run writes
        # to.
        return {name: array.copy() for name, array in found.items()} if self._on_cpu else found

    def _send(self, feed: Mapping[str, Array | None]) -> None:
        for name, place in self._inputs.items():
            values = feed[name]
            if values is not None:
                place.update_inplace(values)
                self._blank.discard(name)
            elif name not in self._blank:
                place.update_inplace(self._zeros[name])
                self._blank.add(name)

    def _shapes(
        self, part: Part, names: Sequence[str], device: str, graph: int | None
    ) -> dict[str, Sequence[int]]:
        self._send(part.feed)
        for name in names:
            self._binding.bind_output(name, device, 0)
        self._session.run_with_iobinding(self._binding, run_options(graph))
        shapes = dict(
            zip(names, (value.shape() for value in self._binding.get_outputs()), strict=True)
        )
        check_rows(shapes, part)
        self._binding.clear_binding_outputs()
        return shapes


def ran_once(
    session: Any, part: Part, names: Sequence[str], device: str, *, records: bool
) -> dict[str, Array]:
    """The part's own rows of every output, at a shape that nobody declared, which only tensors
    have: nothing of it is kept.
    """
    binding = session.io_binding()
    for name in part.shapes:
        binding.bind_ortvalue_input(
            name, onnxruntime.OrtValue.ortvalue_from_numpy(part.feed[name], device, 0)
        )
    for name in names:
        binding.bind_output(name, device, 0)
    session.run_with_iobinding(binding, run_options(UNRECORDED if records else None))
    arrays = dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
    check_rows({name: array.shape for name, array in arrays.items()}, part)
    return {name: array[: part.rows] for name, array in arrays.items()}


def run_options(graph: int | None) -> Any:
    """The options of a run; `None` where graphs are off."""
    if graph is None:
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry(GRAPH, str(graph))
    return options


def check_rows(shapes: Mapping[str, Sequence[int]], part: Part) -> None:
    """Raises ValueError when an output's first axis is not the batch."""
    rows = next(iter(part.shapes.values()))[0]
    for name, shape in shapes.items():
        if not len(shape) or shape[0] != rows:
            raise ValueError(
                f"output {name} has shape {list(shape)} for {rows} rows; its first axis must be the batch"
            )
