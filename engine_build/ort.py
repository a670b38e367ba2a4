"""Networks in ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from engine_build.errors import SourceFault
from engine_build.machine import cores
from engine_build.text import Feed

Array = np.ndarray[Any, Any]


class OrtNetwork:
    """A network, loaded."""

    def __init__(self, network: Path | bytes, *, as_served: bool = False) -> None:
        """`as_served` keeps the servers' busy waiting between runs; without it the machine's other work suffers less."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if as_served else "0")
        model = network if isinstance(network, bytes) else str(network)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise SourceFault(f"ONNX Runtime refuses the network: {' '.join(str(error).split())}") from error
        self.inputs: tuple[str, ...] = tuple(tensor.name for tensor in self._session.get_inputs())

    def embed(self, feed: Feed) -> Array:
        """The first output, one row per row of the feed."""
        answer: Array = self._session.run(None, {name: feed[name] for name in self.inputs})[0]
        return answer

    def values(self, names: Sequence[str], feed: Feed) -> dict[str, Array]:
        """Some outputs by name."""
        return dict(zip(names, self._session.run(list(names), {name: feed[name] for name in self.inputs}), strict=True))


def version() -> str:
    """The ONNX Runtime of this process."""
    return str(onnxruntime.__version__)
