"""The export step: the source model as an ONNX network with dynamic batch and sequence, compared with PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch

from engine_build.errors import SourceFault
from engine_build.feed import Feed
from engine_build.networks import Network
from engine_build.onnx_source import read_model, tensor_records
from engine_build.ort import OrtNetwork
from engine_build.samples import Sample
from engine_build.source_model import SourceModel
from engine_build.text import TextEncoder

OPSET = 17
OUTPUT = "sentence_embedding"
TOLERANCE = 1e-4
INTENT = f"opset {OPSET}, dynamic batch and sequence; compared with PyTorch on real texts at several shapes"


def export(source: SourceModel, texts: Sequence[Sample], folder: Path, *, longest: int) -> Network:
    """Writes `model.onnx` and compares it. Raises SourceFault."""
    encoder = TextEncoder(source.tokenizer, inputs=source.inputs, longest=longest)
    largest = encoder.largest_id(texts)
    if largest >= source.vocabulary:
        raise SourceFault(f"the tokenizer gives token {largest}, but the model knows {source.vocabulary}; they are not a pair.")
    path = folder / "model.onnx"
    _write(source, encoder.feed(texts[:2]), path)
    difference = largest_difference(source, OrtNetwork(path), comparison_feeds(encoder, texts))
    model = read_model(path)
    facts = {
        "exporter": f"torch {torch.__version__}, opset {OPSET}",
        "max_abs_difference": difference,
        "nodes": len(model.graph.node),
    }
    return Network(
        precision="float",
        path=path,
        inputs=tensor_records(model.graph.input),
        outputs=tensor_records(model.graph.output),
        facts=facts,
        tokenizer=source.tokenizer,
    )


def comparison_feeds(encoder: TextEncoder, texts: Sequence[Sample]) -> list[Feed]:
    """Batches of 1, 2, 7 and 16 texts, shortest and longest first: other shapes than the one that was traced."""
    by_length = sorted(texts, key=encoder.length)
    return [encoder.feed(each) for each in (by_length[:1], by_length[-2:], texts[:7], texts[-16:])]


def largest_difference(source: SourceModel, network: OrtNetwork, feeds: Sequence[Feed]) -> float:
    """The largest absolute difference of any element. Raises SourceFault beyond the tolerance, and for NaN and Inf."""
    worst = 0.0
    for feed in feeds:
        wanted, found = source.rows(feed), network.rows(feed)
        shape = "x".join(map(str, feed["input_ids"].shape))
        if found.shape != wanted.shape or not np.isfinite(wanted).all() or not np.isfinite(found).all():
            raise SourceFault(f"the source or its export gives NaN, Inf or another shape at {shape}; it cannot be served.")
        difference = float(np.abs(found - wanted).max())
        if difference > TOLERANCE:
            raise SourceFault(
                f"the exported network differs from PyTorch by {difference:.2g} at {shape}, allowed {TOLERANCE:g}; "
                "the source does something that tracing loses."
            )
        worst = max(worst, difference)
    return worst


def _write(source: SourceModel, example: Feed, path: Path) -> None:
    axes = {name: {0: "batch", 1: "sequence"} for name in source.inputs} | {OUTPUT: {0: "batch"}}
    tensors = tuple(torch.from_numpy(example[name]) for name in source.inputs)
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            # The tracer warns of what it might get wrong; the comparison that follows decides.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                source.module,
                tensors,
                str(path),
                input_names=list(source.inputs),
                output_names=[OUTPUT],
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,
                do_constant_folding=True,
            )
    except Exception as error:
        raise SourceFault(f"the source cannot be exported to ONNX ({' '.join(str(error).split())[:300]}).") from error
    model = read_model(path)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = source.width
    onnx.save(model, path)
