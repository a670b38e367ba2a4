"""Turns a calibration cache of TensorRT before 11 into a symmetric Q/DQ network.

`python -m engine_build.quantization.migration CACHE --network float.onnx --out qdq.onnx [--exclude
NODE ...]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TextIO

import numpy as np
import onnx
from onnx import helper

from engine_build.datasets.dataset import ATTENTION_MASK, Feed
from engine_build.errors import BuildError, InputRefused, SourceFault, one_line
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.options import Parser
from engine_build.ort import OrtNetwork, version
from engine_build.quantization.calibration import Range
from engine_build.quantization.calibration_cache import CalibrationCache, read_cache
from engine_build.quantization.layers import quantizable_layers
from engine_build.quantization.qdq import quantize_layers
from engine_build.quantization.smoothing import LARGEST
from onboarding.nearest import comma_list, did_you_mean

DESCRIPTION = (
    "Turns a calibration cache of TensorRT before 11 into a symmetric Q/DQ network, which TensorRT "
    "10 and 11 take: activations keep the cache's scales, weights get one for each output channel. "
    "The network is checked, and run once in ONNX Runtime."
)
TRIAL_SIZES = (2, 8)
"""Of dynamic axes in the one run of a finished network: rows, then tokens or channels."""
TRIAL_PIXELS = 64


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A Q/DQ network, and what of the float network and of the cache is not in it."""

    network: onnx.ModelProto
    int8: tuple[str, ...]
    """Nodes whose input has the cache's scale, and whose weight a scale for each output channel."""
    without_scale: tuple[str, ...]
    """Nodes left float: the cache has no scale of their input, or 0."""
    not_in_network: tuple[str, ...]
    """Tensors of the cache that the network lacks, such as TensorRT's "(Unnamed Layer* 8) …"."""


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """Exit with 0 when the network is written; 1 and 5 as in errors.py."""
    try:
        print("\n".join(_run(_parse(arguments))), file=stdout)
        return 0
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        print(f"FAILED: {reason}; repair that, and run the same command again.", file=stderr)
        return InputRefused.exit_code


def migrate(
    model: onnx.ModelProto, cache: CalibrationCache, exclude: Sequence[str] = ()
) -> Migration:
    """Put every MatMul, Gemm and Conv into INT8 that the cache has a scale for.

    Raises InputRefused and SourceFault.
    """
    layers, scales = quantizable_layers(model), cache.scales
    nodes = [layer.node for layer in layers]
    for name in exclude:
        if name not in nodes:
            way_out = did_you_mean(name, nodes, "allowed: " + comma_list(nodes))
            raise InputRefused(f"--exclude {name} is no layer of the network; {way_out}")
    candidates = [layer for layer in layers if layer.node not in exclude]
    for layer in candidates:
        if layer.activation in cache.infinite:
            raise InputRefused(
                f"the cache's scale of {layer.activation}, which {layer.node} reads, is infinite; "
                f"leave that node float (--exclude {layer.node}), or calibrate anew."
            )
    chosen = [layer for layer in candidates if scales.get(layer.activation, 0.0) > 0]
    if not chosen:
        raise InputRefused(
            "no layer of the network takes its input's scale from the cache, whose tensors are "
            f"{comma_list(scales, 3)}; name the cache of this very network, exported with the same "
            "tensor names."
        )
    # Times 127 in float64, so that the writer's division gives the cache's own float32 back.
    ranges = {
        layer.activation: Range(smoothing=None, threshold=scales[layer.activation] * LARGEST)
        for layer in chosen
    }
    tensors = {name for node in model.graph.node for name in node.output}
    tensors |= {value.name for value in model.graph.input}
    return Migration(
        network=quantize_layers(model, chosen, ranges),
        int8=tuple(layer.node for layer in chosen),
        without_scale=tuple(layer.node for layer in candidates if layer not in chosen),
        not_in_network=tuple(name for name in scales if name not in tensors),
    )


def write_network(network: onnx.ModelProto, path: Path) -> None:
    """Write, check and run a network once, on generated values. Raises SourceFault."""
    onnx.save(network, path)
    onnx.checker.check_model(str(path))
    outputs = [output.name for output in network.graph.output]
    try:
        answers = OrtNetwork(path).values(outputs, trial_feed(network))
    except SourceFault:
        raise
    except Exception as error:
        raise SourceFault(
            f"ONNX Runtime cannot run {path.name} ({one_line(error)}); look into the network at "
            "that node."
        ) from error
    for name, values in answers.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise SourceFault(
                f"output {name} of {path.name} becomes NaN or Inf; check the float network, or "
                "exclude layers."
            )


def trial_feed(network: onnx.ModelProto) -> Feed:
    """Return values for one run: floats of a fixed seed, integers 0, attention masks 1."""
    weights = {weight.name for weight in network.graph.initializer}
    random = np.random.default_rng(0)
    feed: Feed = {}
    for tensor in (value for value in network.graph.input if value.name not in weights):
        dtype = helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
        dims, sizes = tensor.type.tensor_type.shape.dim, chain(TRIAL_SIZES, repeat(TRIAL_PIXELS))
        shape = [
            int(dim.dim_value) if dim.HasField("dim_value") else size
            for dim, size in zip(dims, sizes, strict=False)
        ]
        if np.issubdtype(dtype, np.floating):
            feed[tensor.name] = random.standard_normal(shape).astype(dtype)
        else:
            feed[tensor.name] = np.full(shape, tensor.name == ATTENTION_MASK).astype(dtype)
    return feed


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    program = "python -m engine_build.quantization.migration"
    parser = Parser(prog=program, description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("cache", type=Path, metavar="CACHE", help="the calibration cache")
    parser.add_argument(
        "--network", type=Path, required=True, help="the float network, ONNX, that it belongs to"
    )
    parser.add_argument("--out", type=Path, required=True, help="the Q/DQ network, ONNX, to write")
    parser.add_argument(
        "--exclude", nargs="+", default=[], metavar="NODE", help="nodes that stay float"
    )
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace) -> list[str]:
    """Write the network; return the report, in lines."""
    cache = read_cache(options.cache)
    if not options.network.is_file():
        raise InputRefused(
            f"--network {options.network} is no file; name the float network that the cache "
            "belongs to."
        )
    result = migrate(read_model(options.network), cache, options.exclude)
    write_network(result.network, options.out)
    report = [
        f"{options.out}: {len(result.int8)} layers in INT8, their inputs by {options.cache.name} "
        f"of TensorRT {cache.version}, {cache.algorithm}; runs in ONNX Runtime {version()}."
    ]
    for title, names in (
        ("left float, the cache has no scale of their input", result.without_scale),
        ("left float, excluded", options.exclude),
        ("tensors of the cache that are not in the network", result.not_in_network),
    ):
        if names:
            report += [f"{title} ({len(names)}):", *(f"  {name}" for name in names)]
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
