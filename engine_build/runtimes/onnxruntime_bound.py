"""A network in ONNX Runtime with its inputs and outputs bound to a device.

On CUDA never executed where this repository was made; on the CPU the same lines run in the tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime

from engine_build.errors import SourceFault
from engine_build.runtimes.availability import CUDA_PROVIDER
from engine_build.runtimes.ort import flattened
from engine_build.runtimes.pytorch import Device
from engine_build.samples.feed import Array, Feed

PROVIDERS: dict[Device, str] = {"cpu": "CPUExecutionProvider", "cuda": CUDA_PROVIDER}


class BoundNetwork:
    """A network, loaded on a device; what the provider has no kernel for runs on the CPU, as it
    would for a user.
    """

    def __init__(self, network: Path, *, device: Device = "cuda") -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        wanted = list(dict.fromkeys([PROVIDERS[device], PROVIDERS["cpu"]]))
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(network), options, providers=wanted
            )
        except Exception as error:
            raise SourceFault(
                f"ONNX Runtime refuses the network: {' '.join(str(error).split())}"
            ) from error
        if PROVIDERS[device] not in self._session.get_providers():
            raise SourceFault(
                f"ONNX Runtime fell back from {PROVIDERS[device]}: its CUDA or cuDNN libraries do not load."
            )
        self._device = device
        self.inputs: tuple[str, ...] = tuple(tensor.name for tensor in self._session.get_inputs())
        self._outputs = tuple(tensor.name for tensor in self._session.get_outputs())

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]; inputs go to the device once, and only outputs come back."""
        binding = self._session.io_binding()
        for name in self.inputs:
            binding.bind_ortvalue_input(
                name, onnxruntime.OrtValue.ortvalue_from_numpy(feed[name], self._device, 0)
            )
        for name in self._outputs:
            binding.bind_output(name, self._device, 0)
        self._session.run_with_iobinding(binding)
        return flattened(binding.copy_outputs_to_cpu())
