"""Networks in ONNX Runtime: on the CPU, and with inputs and outputs bound to a device.

On CUDA never executed where this repository was made; on the CPU the same lines run in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime

from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import SourceFault, one_line
from engine_build.machine import cores

Device = Literal["cpu", "cuda"]
CUDA_PROVIDER = "CUDAExecutionProvider"
FP8_TYPE = "tensor(float8e4m3fn)"
WITHOUT_FUSED_QDQ = "session.disable_quant_qdq"
EXACT_SUMS = "session.x64quantprecision"
"""On x86 without VNNI, such as the hosts of A10Gs, sums of INT8 products saturate else."""
BREAKS_FP8 = ("ReluQuantRewrite",)
"""It drops a Relu before a QuantizeLinear of E4M3, whose zero it takes for UINT8's least value
(ONNX Runtime 1.31.1). Servers' networks hold no such node (quantization/fp8.py)."""
FAULTLESS = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_LAYOUT
"""All but the last level, which is for FP16 on CPUs: ONNX Runtime 1.31.1 ends there with SIGSEGV on
torch's TransformerEncoder in FP16."""
PROVIDERS: dict[Device, str] = {"cpu": "CPUExecutionProvider", "cuda": CUDA_PROVIDER}


WAYS_OUT = {
    "not a registered function/op": (
        "export it with standard operators of ONNX, in the place of that one"
    ),
    "Could not find an implementation": (
        "it has no such operator of this opset for the type of its inputs (such as BF16 or FP4): "
        "cast them to FP32; export it with opset 17"
    ),
    "Unsupported model IR version": (
        "set model.ir_version to 10 with the onnx package, and save it: operators follow from the "
        "opset"
    ),
    "two nodes with same node name": "give each node a name of its own, or none",
    "ShapeInferenceError": "its sizes contradict each other: export it again from its source",
}
"""By what ONNX Runtime says of a network that it refuses."""


class OrtNetwork:
    """A network, loaded."""

    def __init__(
        self, network: Path | bytes, *, as_served: bool = False, fuses_qdq: bool = True
    ) -> None:
        """`as_served` keeps the servers' busy waiting, which slows other work on the machine.

        `fuses_qdq`: Q/DQ nodes may become integer operators, which answer zeros where an FP16
        network quantizes its weights alone (ONNX Runtime 1.31.1, below the last level).
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        options.inter_op_num_threads = 1
        if not as_served:
            options.graph_optimization_level = FAULTLESS
        if not fuses_qdq:
            options.add_session_config_entry(WITHOUT_FUSED_QDQ, "1")
        spinning = "1" if as_served else "0"
        options.add_session_config_entry("session.intra_op.allow_spinning", spinning)
        # Threads that went on waiting busily after a run would take the cores from whatever is
        # measured next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        disabled = () if as_served else BREAKS_FP8
        self._session = _session(network, options, "cpu", disabled)
        self.inputs: tuple[str, ...] = tuple(tensor.name for tensor in self._session.get_inputs())

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values], outputs flattened side by side. Raises SourceFault."""
        return flattened(self._session.run(None, {name: feed[name] for name in self.inputs}))

    def values(self, names: Sequence[str], feed: Feed) -> dict[str, Array]:
        """Some outputs by name."""
        if not names:
            # ONNX Runtime takes an empty list for all of them.
            return {}
        outputs = self._session.run(list(names), {name: feed[name] for name in self.inputs})
        return dict(zip(names, outputs, strict=True))


class BoundNetwork:
    """A network, loaded on a device; the CPU runs what the provider has no kernel for."""

    def __init__(self, network: Path, *, device: Device = "cuda") -> None:
        self._session = _session(network, onnxruntime.SessionOptions(), device, BREAKS_FP8)
        if PROVIDERS[device] not in self._session.get_providers():
            raise SourceFault(
                f"ONNX Runtime fell back from {PROVIDERS[device]}: its CUDA or cuDNN libraries do "
                "not load."
            )
        self._device = device
        self.inputs: tuple[str, ...] = tuple(tensor.name for tensor in self._session.get_inputs())
        self._outputs = tuple(tensor.name for tensor in self._session.get_outputs())

    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]; inputs go to the device once, and only outputs come back."""
        binding = self._session.io_binding()
        for name in self.inputs:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(feed[name], self._device, 0)
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, self._device, 0)
        self._session.run_with_iobinding(binding)
        return flattened(binding.copy_outputs_to_cpu())


def _session(network: Path | bytes, options: Any, device: Device, disabled: Sequence[str]) -> Any:
    options.log_severity_level = 3
    options.add_session_config_entry(EXACT_SUMS, "1")
    model = network if isinstance(network, bytes) else str(network)
    providers = list(dict.fromkeys([PROVIDERS[device], PROVIDERS["cpu"]]))
    try:
        return onnxruntime.InferenceSession(
            model, options, providers=providers, disabled_optimizers=list(disabled)
        )
    except Exception as error:
        if FP8_TYPE in str(error) and not _is_unfused(options):
            # Q/DQ nodes of FP8 become integer operators, which refuse it.
            options.add_session_config_entry(WITHOUT_FUSED_QDQ, "1")
            return _session(network, options, device, disabled)
        ways_out = (way_out for words, way_out in WAYS_OUT.items() if words in str(error))
        raise SourceFault(
            f"ONNX Runtime {version()} refuses the network ({one_line(error)}); "
            f"{next(ways_out, 'export it with opset 17')}."
        ) from error


def _is_unfused(options: Any) -> bool:
    try:
        return bool(options.get_session_config_entry(WITHOUT_FUSED_QDQ) == "1")
    except RuntimeError:
        return False


def flattened(outputs: Sequence[Array]) -> Array:
    """Some outputs as float32 [rows, values]."""
    if len({len(output) if output.ndim else 0 for output in outputs}) != 1:
        shapes = ", ".join(str(list(output.shape)) for output in outputs)
        raise SourceFault(
            f"the network's outputs have shapes {shapes}; each needs the batch as its first axis: "
            "transpose it there before the export, or leave an output out that is no answer to a "
            "sample (onnx.utils.extract_model writes a network of chosen outputs)."
        )
    rows = [np.asarray(output, dtype=np.float32).reshape(len(output), -1) for output in outputs]
    beside: Array = rows[0] if len(rows) == 1 else np.concatenate(rows, axis=1)
    return beside


def version() -> str:
    """The ONNX Runtime of this process."""
    return str(onnxruntime.__version__)
