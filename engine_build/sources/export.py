"""The source model as an ONNX network with dynamic axes, compared with PyTorch."""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from engine_build.datasets.dataset import Encoder, Feed, Sample, Shape, by_length
from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault, one_line
from engine_build.exported import ExportedProgram
from engine_build.onnx_graph.external_data import pack_network
from engine_build.onnx_graph.network_store import Network, observed_outputs
from engine_build.onnx_graph.onnx_file import qdq_node_count, read_model, tensor_records
from engine_build.ort import OrtNetwork
from engine_build.sources.image_model import ImageModel
from engine_build.sources.source_model import SourceModel
from engine_build.store import LARGEST_OBJECT_BYTES
from onboarding.values import EXPORT_OPSET

ABSOLUTE, RELATIVE = 1e-4, 1e-4
"""A value may differ by ABSOLUTE + RELATIVE * |value|: embeddings are unit vectors, logits not."""
Exported = SourceModel | ImageModel


def intent(opset: int) -> str:
    """Return the sentence that the step's log line says."""
    return (
        f"opset {opset}, dynamic batch and, of texts, sequence; compared with PyTorch on real "
        "samples at several shapes"
    )


def export(
    source: Exported,
    samples: Sequence[Sample],
    folder: Path,
    *,
    longest: int | None = None,
    opset: int = EXPORT_OPSET,
) -> Network:
    """Write `model.onnx`, and of texts `tokenizer.json`, and compare the network.

    `longest` is the sequence of texts. Raises SourceFault.
    """
    encoder: Encoder
    if isinstance(source, ImageModel):
        encoder, tokenizer, processor = source.encoder, None, source.processor
    else:
        assert longest is not None
        tokenizer, processor = source.save_tokenizer(folder), None
        encoder = TextEncoder(tokenizer, inputs=source.inputs, longest=longest)
    feeds = comparison_feeds(encoder, samples, longest)
    network = _export_network(source, encoder.feed(samples[:2]), feeds, folder, opset)
    return dataclasses.replace(network, tokenizer=tokenizer, image_processor=processor)


def _export_network(
    source: Exported, example: Feed, feeds: Sequence[Feed], folder: Path, opset: int
) -> Network:
    path, traced = folder / "model.onnx", folder / "traced" / "model.onnx"
    _refuse_large_weights(source)
    traced.parent.mkdir()
    _write(source, example, traced, opset)
    # Beyond 2 GiB torch writes a file for each weight.
    pack_network(traced, path)
    network = OrtNetwork(path)
    difference = largest_difference(source, network, feeds)
    source.release()
    model = read_model(path, weights=False)
    qdq_nodes = qdq_node_count(model)
    return Network(
        precision="float",
        path=path,
        inputs=tensor_records(model.graph.input),
        outputs=observed_outputs(tensor_records(model.graph.output), network, feeds),
        facts={
            "exporter": f"torch {torch.__version__}",
            "opset": opset,
            "max_abs_difference": difference,
            "nodes": len(model.graph.node),
            **({"qdq_nodes": qdq_nodes} if qdq_nodes else {}),
            **({} if source.head is None else {"activation": source.head.activation}),
        },
        labels=None if source.head is None else source.head.labels,
    )


def comparison_feeds(
    encoder: Encoder, samples: Sequence[Sample], longest: int | None
) -> list[Feed]:
    """Return batches of 1, 2, 7 and 16 samples, and of texts one row of the longest sequence.

    The shortest and the longest text are among them.
    """
    ordered = [samples[index] for index in by_length(encoder, samples)]
    batches = (ordered[:1], ordered[-2:], samples[:7], samples[-16:])
    feeds = list(map(encoder.feed, batches))
    if longest is not None:
        feeds.append(encoder.shaped(samples, Shape(batch=1, sequence=longest)))
    return feeds


def largest_difference(
    source: Exported, network: OrtNetwork | ExportedProgram, feeds: Sequence[Feed]
) -> float:
    """Return the largest absolute difference of any element.

    Raises SourceFault beyond the tolerance, and for NaN and Inf.
    """
    worst = 0.0
    for feed in feeds:
        shape = "x".join(map(str, feed[source.inputs[0]].shape))
        expected = source.rows(feed)
        try:
            actual = network.rows(feed)
        except Exception as error:
            raise SourceFault(
                f"the exported network cannot be run at {shape} ({one_line(error)}); the source "
                "does something that tracing loses: export it to ONNX yourself."
            ) from error
        if actual.shape != expected.shape or not np.isfinite([expected, actual]).all():
            raise SourceFault(
                f"the source or its export gives NaN, Inf or another shape at {shape}; it cannot "
                "be served."
            )
        difference = np.abs(actual - expected)
        if (difference > ABSOLUTE + RELATIVE * np.abs(expected)).any():
            raise SourceFault(
                f"the exported network differs from PyTorch by {difference.max():.2g} at {shape}, "
                f"allowed {ABSOLUTE:g} + {RELATIVE:g} of the value; the source does something that "
                "tracing loses: export it to ONNX yourself."
            )
        worst = max(worst, float(difference.max()))
    return worst


def _refuse_large_weights(source: Exported) -> None:
    size = sum(weight.numel() for weight in source.module.parameters()) * 4
    if size > LARGEST_OBJECT_BYTES:
        raise SourceFault(
            f"the checkpoint has {size / 1e9:.2f} GB of weights in float32, and a network is "
            f"published as one object of S3, {LARGEST_OBJECT_BYTES / 1e9:.2f} GB at most; choose a "
            "smaller model, or export it in FP16 yourself and name that as `source.onnx`."
        )


@contextmanager
def _without_output() -> Iterator[None]:
    """Drop what C++ code writes to standard output, which the build's result alone is for.

    The exporter prints the whole graph where it fails.
    """
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _write(source: Exported, example: Feed, path: Path, opset: int) -> None:
    batch, tokens = {0: "batch"}, {0: "batch", 1: "sequence"}
    axes = dict.fromkeys(source.inputs, batch)
    if isinstance(source, SourceModel):
        axes = dict.fromkeys(source.inputs, tokens)
    answers_tokens = isinstance(source, SourceModel) and source.answers_tokens
    axes[source.output] = tokens if answers_tokens else batch
    tensors = tuple(torch.from_numpy(example[name]) for name in source.inputs)
    try:
        with torch.inference_mode(), warnings.catch_warnings(), _without_output():
            # The tracer warns of what it might get wrong; the comparison that follows decides.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                source.module,
                tensors,
                str(path),
                input_names=list(source.inputs),
                output_names=[source.output],
                dynamic_axes=axes,
                opset_version=opset,
                dynamo=False,
                do_constant_folding=True,
            )
    except OSError:
        raise
    except Exception as error:
        raise SourceFault(
            f"the source cannot be exported to ONNX ({one_line(error)}); export it yourself, as "
            "by torch's newer exporter, and name the file as `source.onnx`."
        ) from error
