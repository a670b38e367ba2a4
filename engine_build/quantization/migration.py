"""From a calibration cache to a Q/DQ network: the scales that TensorRT before 11 took from a file,
written into the network.

`python -m engine_build.quantization.migration CACHE --network float.onnx --out qdq.onnx [--exclude
NODE ...]`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

import numpy as np
import onnx
from onnx import helper

from engine_build.errors import BuildError, InputRefused, SourceFault
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration import LARGEST, Range
from engine_build.quantization.calibration_cache import CalibrationCache, read_cache
from engine_build.quantization.layers import Layer, layers
from engine_build.quantization.qdq import quantized
from engine_build.samples.feed import ATTENTION_MASK, Feed
from onboarding.nearest import did_you_mean, listed

TRIAL_SIZES = (2, 8)
"""Of dynamic axes, in the one run of a finished network: rows, then tokens or channels."""
TRIAL_PIXELS = 64


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A Q/DQ network, and what did not find its way into it."""

    network: onnx.ModelProto
    int8: tuple[str, ...]
    """Nodes whose input has the cache's scale, and whose weight a scale for each output channel."""
    without_scale: tuple[str, ...]
    """Nodes left float: the cache has no scale of their input, or 0."""
    excluded: tuple[str, ...]
    """Nodes left float because they were named."""
    not_in_network: tuple[str, ...]
    """Tensors of the cache that the network lacks; TensorRT counts its own "(Unnamed Layer* 8) …"
    too.
    """


def migrated(
    model: onnx.ModelProto, cache: CalibrationCache, exclude: Sequence[str] = ()
) -> Migration:
    """Every MatMul, Gemm and Conv in INT8 that the cache has a scale for.

    Raises InputRefused and SourceFault.
    """
    found = layers(model)
    _refuse_unknown(exclude, [layer.node for layer in found])
    scales = cache.scales
    chosen = [
        layer
        for layer in found
        if layer.node not in exclude and scales.get(layer.activation, 0.0) > 0
    ]
    if not chosen:
        raise InputRefused(
            f"no layer of the network takes its input's scale from the cache, whose tensors are {listed(scales, 3)}; name the "
            "cache of this very network, exported with the same tensor names."
        )
    int8 = tuple(layer.node for layer in chosen)
    known = {name for node in model.graph.node for name in node.output} | {
        each.name for each in model.graph.input
    }
    return Migration(
        network=quantized(model, chosen, _ranges(chosen, scales)),
        int8=int8,
        without_scale=tuple(
            layer.node for layer in found if layer.node not in exclude and layer.node not in int8
        ),
        excluded=tuple(exclude),
        not_in_network=tuple(name for name in scales if name not in known),
    )


def write_network(network: onnx.ModelProto, path: Path) -> None:
    """Writes, checks and runs a network once, on made-up values. Raises SourceFault."""
    onnx.save(network, path)
    onnx.checker.check_model(str(path))
    outputs = [output.name for output in network.graph.output]
    try:
        answers = OrtNetwork(path).values(outputs, trial_feed(network))
    except SourceFault:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceFault(
            f"ONNX Runtime cannot run {path.name} ({reason}); look into the network at that node."
        ) from error
    broken = [
        name
        for name, values in answers.items()
        if values.dtype.kind == "f" and not np.isfinite(values).all()
    ]
    if broken:
        raise SourceFault(
            f"output {broken[0]} of {path.name} becomes NaN or Inf; check the float network, or exclude layers."
        )


def trial_feed(network: onnx.ModelProto) -> Feed:
    """Values for one run: floats of a fixed seed, integers 0, attention masks 1."""
    weights = {weight.name for weight in network.graph.initializer}
    draw = np.random.default_rng(0)
    feed: Feed = {}
    for tensor in (each for each in network.graph.input if each.name not in weights):
        kind = helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type)
        shape = tuple(
            _size(dim, axis) for axis, dim in enumerate(tensor.type.tensor_type.shape.dim)
        )
        is_float = np.issubdtype(kind, np.floating)
        values = (
            draw.standard_normal(shape)
            if is_float
            else np.full(shape, tensor.name == ATTENTION_MASK)
        )
        feed[tensor.name] = values.astype(kind)
    return feed


def _ranges(chosen: Sequence[Layer], scales: dict[str, float]) -> dict[str, Range]:
    # Times 127 in float64, so that the writer's division gives the cache's own float32 back.
    return {
        layer.activation: Range(smoothing=None, threshold=scales[layer.activation] * LARGEST)
        for layer in chosen
    }


def _refuse_unknown(exclude: Sequence[str], nodes: Sequence[str]) -> None:
    for name in exclude:
        if name not in nodes:
            raise InputRefused(
                f"--exclude {name} is no layer of the network; {did_you_mean(name, nodes, 'allowed: ' + listed(nodes))}"
            )


def _size(dim: onnx.TensorShapeProto.Dimension, axis: int) -> int:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return TRIAL_SIZES[axis] if axis < len(TRIAL_SIZES) else TRIAL_PIXELS


DESCRIPTION = (
    "Turns a calibration cache of TensorRT before 11 into a symmetric Q/DQ network, which TensorRT 10 and 11 take: activations "
    "keep the cache's scales, weights get one for each output channel. The network is checked, and run once in ONNX Runtime."
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputRefused(
            f"{message}; run `python -m engine_build.quantization.migration --help` for the options."
        )


def main(arguments: Sequence[str], stdout: TextIO, stderr: TextIO) -> int:
    """Exit codes: 0 written; 1 and 5 as in errors.py."""
    try:
        print("\n".join(migrate(_parsed(arguments))), file=stdout)
        return 0
    except BuildError as error:
        print(f"FAILED: {error}", file=stderr)
        return error.exit_code
    except OSError as error:
        print(
            f"FAILED: {error.filename}: {error.strerror}; repair that, and run the same command again.",
            file=stderr,
        )
        return InputRefused.exit_code


def migrate(options: argparse.Namespace) -> tuple[str, ...]:
    """Writes the network; tells what became of the cache, in lines. Raises BuildError."""
    cache = read_cache(options.cache)
    if not options.network.is_file():
        raise InputRefused(
            f"--network {options.network} is no file; name the float network that the cache was made of."
        )
    # The numeric libraries load here, so that a mistyped command is refused at once.
    from engine_build.ort import version
    from engine_build.quantization.migration import migrated, write_network
    from engine_build.sources.onnx_source import read_model

    result = migrated(read_model(options.network), cache, options.exclude)
    write_network(result.network, options.out)
    origin = f"{options.cache.name} of TensorRT {cache.version}, {cache.algorithm}"
    written = f"{options.out}: {len(result.int8)} layers in INT8, their inputs by {origin}; runs in ONNX Runtime {version()}."
    return (
        written,
        *_told("left float, the cache has no scale of their input", result.without_scale),
        *_told("left float, excluded", result.excluded),
        *_told("tensors of the cache that are not in the network", result.not_in_network),
    )


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="python -m engine_build.quantization.migration",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("cache", type=Path, metavar="CACHE", help="the calibration cache")
    parser.add_argument(
        "--network", type=Path, required=True, help="the float network, ONNX, that it was made of"
    )
    parser.add_argument("--out", type=Path, required=True, help="the Q/DQ network, ONNX, to write")
    parser.add_argument(
        "--exclude", nargs="+", default=[], metavar="NODE", help="nodes that stay float"
    )
    return parser.parse_args(arguments)


def _told(what: str, names: Sequence[str]) -> tuple[str, ...]:
    return (f"{what} ({len(names)}):", *(f"  {name}" for name in names)) if names else ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
