"""The networks that are measured: `python -m benchmarks.gpu.networks NAME FOLDER [--tiny]`.

fp32.onnx   exported from PyTorch; weights are random, and the same in every process of a machine
fp16.onnx   written by us, as a build does
ort.onnx    fused and in FP16 by ONNX Runtime's own tool
fp8.onnx, int8.onnx   Q/DQ networks, calibrated here and written as a build does

A network that cannot be written leaves its reason in KIND.txt; what is there is not written again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from engine_build.datasets.dataset import Feed, Sample, Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import one_line
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import tensor_records
from engine_build.quantization.explicit import Quantization
from engine_build.quantization.fp8 import Fp8Quantization
from engine_build.tensorrt.half_precision import write_half_precision
from tests.gpu.networks import FEW_TOKENS, SEED, SEQUENCE, Made, make, write_float

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
NETWORKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "minilm": ("bert-large", MINILM | {"intermediate_size": 1536}),
    "vit-base": ("vit-base", {}),
    "resnet-50": ("resnet-50", {}),
    "bert-large": ("bert-large", {}),
}
"""The maker of each in tests/gpu/networks.py, and the sizes that it replaces."""
FEW_HEADS = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY_TEXTS = FEW_HEADS | {"intermediate_size": 64}
TINY: Mapping[str, dict[str, Any]] = {
    "minilm": TINY_TEXTS,
    "vit-base": TINY_TEXTS | {"image_size": 32},
    "resnet-50": {"embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "bert-large": TINY_TEXTS,
}
"""Sizes with which the command is tried on a CPU."""
KINDS = ("fp32", "fp16", "ort", "fp8", "int8")
CALIBRATION = 16
"""Samples: of texts FEW_TOKENS long, since BERT-large takes minutes on a CPU."""


def sizes(name: str, *, tiny: bool) -> dict[str, Any]:
    """Return the sizes of a network that differ from those of its maker."""
    return TINY[name] if tiny else NETWORKS[name][1]


def module_of(name: str, *, tiny: bool) -> Made:
    """Return a network's module, in FP32 on the CPU."""
    made: Made = make(NETWORKS[name][0], sizes(name, tiny=tiny))
    return made


def feed_of(made: Made, batch: int) -> Feed:
    """Return a batch: images, or rows of SEQUENCE tokens of which the last may be padding."""
    feed: Feed = made.samples(np.random.default_rng([SEED, batch]), batch)
    return feed


def write_networks(name: str, folder: Path, *, tiny: bool) -> None:
    """Write each kind of a network whole, or its reason."""
    folder.mkdir(parents=True, exist_ok=True)
    made = module_of(name, tiny=tiny)
    plain = folder / "fp32.onnx"
    writers: dict[str, Callable[[Path], object]] = {
        "fp32": partial(write_float, made, np.random.default_rng(SEED)),
        "fp16": partial(write_half_precision, plain),
        "ort": partial(write_fused, plain, made),
        "fp8": partial(write_quantized, "fp8", plain, made),
        "int8": partial(write_quantized, "int8", plain, made),
    }
    for kind, write in writers.items():
        path, draft = folder / f"{kind}.onnx", folder / f"draft-{kind}.onnx"
        if path.is_file():
            continue
        try:
            write(draft)
            draft.rename(path)
        except Exception as fault:  # the other networks stay worth having
            reason = f"{type(fault).__name__}: {one_line(fault, 250)}"
            path.with_suffix(".txt").write_text(reason, encoding="utf-8")


def write_fused(plain: Path, made: Made, path: Path) -> None:
    """Write the network as ONNX Runtime's transformer optimizer fuses it, in FP16."""
    from onnxruntime.transformers import optimizer

    config = made.module.encoder.config
    network = optimizer.optimize_model(
        str(plain),
        model_type="bert" if "input_ids" in made.inputs else "vit",
        num_heads=getattr(config, "num_attention_heads", 0),
        hidden_size=getattr(config, "hidden_size", 0),
        opt_level=0,
        use_gpu=True,
    )
    network.convert_float_to_float16(keep_io_types=True)
    network.save_model_to_file(str(path))


def write_quantized(precision: str, plain: Path, made: Made, path: Path) -> None:
    """Write the Q/DQ network with its float part in FP16. Raises BuildError."""
    graph = onnx.load(plain, load_external_data=False).graph
    inputs, outputs = tensor_records(graph.input), tensor_records(graph.output)
    arrays = made.samples(np.random.default_rng(SEED + 1), CALIBRATION)
    has_tokens = "input_ids" in made.inputs
    cut = {name: rows[:, :FEW_TOKENS] if has_tokens else rows for name, rows in arrays.items()}
    samples: tuple[Sample, ...] = tuple(
        {name: rows[index] for name, rows in cut.items()} for index in range(CALIBRATION)
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        options: dict[str, Any] = {
            "network": Network(
                precision="float", path=plain, inputs=inputs, outputs=outputs, facts={}
            ),
            "encoder": TensorEncoder(inputs),
            "calibration": samples,
            "shape": Shape(batch=8, sequence=SEQUENCE if has_tokens else None),
            "folder": Path(folder),
        }
        if precision == "fp8":
            written = Fp8Quantization(**options).run()
        else:
            written = Quantization(**options, method="max").run(print)
        write_half_precision(written.path, path)


def main(arguments: Sequence[str]) -> None:
    """Write the networks of one name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.networks", description=__doc__)
    parser.add_argument("name", choices=NETWORKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tiny", action="store_true", help="networks of one layer")
    chosen = parser.parse_args(arguments)
    write_networks(chosen.name, chosen.folder, tiny=chosen.tiny)


if __name__ == "__main__":
    main(sys.argv[1:])
