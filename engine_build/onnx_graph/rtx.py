"""The compile check's own process.

`python -m engine_build.onnx_graph.rtx NETWORK PROFILES` prints one JSON line.

PROFILES is a JSON list of {"batch": [min, opt, max], "sequence": [min, opt, max] or null}.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from container.tensorrt.bindings import error_logger

Profile = dict[str, list[int] | None]
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
    """Collects what the builder's verbose log says about layers, and counts them.

    It lists each layer on one line: "Name: …, LayerType: gemm, Inputs: [ { Name: …, Datatype:
    Int8, … } ], Constants: …". What a layer multiplies stands among its inputs and constants.
    """

    kinds: list[tuple[str, bool]] = field(default_factory=list)
    """Of each layer its type, and True where an input is INT8."""
    activation_bytes: int = 0

    def read(self, message: str) -> None:
        """Take one message of the builder's; most say nothing of layers."""
        if "LayerType: " in message:
            self.kinds += [
                (match["kind"], "Int8" in DATATYPE.findall(match["inputs"]))
                for match in LINE.finditer(message)
            ]
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


def main(arguments: list[str]) -> int:
    """Return 0 after the line; 3 where TensorRT-RTX is not installed, or lacks a library."""
    try:
        import tensorrt_rtx as trt
    except (ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    begin, layers = time.monotonic(), LayerLog()
    faults = refusals(trt, Path(arguments[0]), json.loads(arguments[1]), layers)
    result = {
        "version": str(trt.__version__),
        "verdict": "fail" if faults else "pass",
        "seconds": round(time.monotonic() - begin, 2),
        "faults": faults,
        "layers": layers.counts(),
    }
    print(json.dumps(result))
    return 0


def refusals(
    trt: Any, path: Path, profiles: list[Profile], layers: LayerLog
) -> list[dict[str, Any]]:
    """Return why the network does not compile, in TensorRT's words, by node; [] when it does.

    `layers` are filled with what it compiles into.
    """
    logger = _logger(trt, layers)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        return [_fault(parser.get_error(index)) for index in range(parser.num_errors)] or [
            {"message": "it does not parse"}
        ]
    config = builder.create_builder_config()
    # Without it the log names layers alone.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    try:
        for profile in profiles:
            config.add_optimization_profile(_profile(builder, network, profile))
    except (RuntimeError, ValueError) as error:
        return [{"message": str(error)}]
    plan = builder.build_serialized_network(network, config)
    if plan is not None:
        return []
    return [{"message": message} for message in logger.errors] or [
        {"message": "it does not compile, and the builder says no more"}
    ]


def _logger(trt: Any, layers: LayerLog) -> Any:
    """Return a logger of errors that shows `layers` the messages of all severities."""
    errors = error_logger(trt)
    keep = type(errors).log

    class LayerLogger(type(errors)):  # type: ignore[misc]
        def log(self, severity: Any, message: str) -> None:
            layers.read(message)
            keep(self, severity, message)

    return LayerLogger()


def _fault(error: Any) -> dict[str, Any]:
    return {
        "message": error.desc(),
        "node": error.node(),
        "name": error.node_name(),
        "operator": error.node_operator(),
    }


def _profile(builder: Any, network: Any, profile: Profile) -> Any:
    result = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        sizes = [_sizes(tuple(tensor.shape), profile, index) for index in range(3)]
        if any(size < 0 for size in sizes[0]):
            raise ValueError(
                f"input {tensor.name} has shape {list(tensor.shape)}, and no profile sets all its "
                "dynamic axes"
            )
        result.set_shape(tensor.name, *sizes)
    return result


def _sizes(shape: tuple[int, ...], profile: Profile, index: int) -> tuple[int, ...]:
    """Set the batch, axis 0, and the sequence, axis 1; axes that are fixed stay as they are."""
    sizes = list(shape)
    for axis, range_ in enumerate((profile.get("batch"), profile.get("sequence"))):
        if axis < len(sizes) and sizes[axis] < 0 and range_ is not None:
            sizes[axis] = range_[index]
    return tuple(sizes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
