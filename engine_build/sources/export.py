"""The source model as an ONNX network or a PyTorch program, compared with the source.

Networks have dynamic axes. A program, `model.pt2`, is torch.export's graph of aten's operators with
dynamic axes; what a server would have to evaluate or unpickle is left out of the file, and so is
what tells of this machine: equal models give equal bytes.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from container.pytorch.scan import (
    FOLDER,
    GRAPH_FILE,
    SAMPLE_INPUTS,
    SIGNATURE_FILE,
    ProgramInput,
    ProgramSignature,
)
from engine_build.datasets.dataset import Encoder, Feed, Sample, Shape, by_length
from engine_build.datasets.text import TextEncoder, save_padded
from engine_build.errors import SourceFault, one_line
from engine_build.exported import ExportedProgram
from engine_build.onnx_graph.external_data import pack_network
from engine_build.onnx_graph.network_store import Network, observed_outputs
from engine_build.onnx_graph.onnx_file import qdq_node_count, read_model, tensor_records
from engine_build.ort import OrtNetwork
from engine_build.sources.source_model import ImageModel, SourceModel
from engine_build.store import LARGEST_OBJECT_BYTES
from onboarding.values import EXPORT_OPSET

ABSOLUTE, RELATIVE = 1e-4, 1e-4
"""A value may differ by ABSOLUTE + RELATIVE * |value|: embeddings are unit vectors, logits not."""
Exported = SourceModel | ImageModel


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
        tokenizer = save_padded(source.tokenizer, folder, source.padding)
        processor = None
        encoder = TextEncoder(tokenizer, inputs=source.inputs, longest=longest)
    feeds = comparison_feeds(encoder, samples, longest)
    path, traced = folder / "model.onnx", folder / "traced" / "model.onnx"
    traced.parent.mkdir()
    _write(source, encoder.feed(samples[:2]), traced, opset)
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
        tokenizer=tokenizer,
        image_processor=processor,
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
    """Write the network as torch's exporter traces it. Raises SourceFault."""
    size = sum(weight.numel() for weight in source.module.parameters()) * 4
    if size > LARGEST_OBJECT_BYTES:
        raise SourceFault(
            f"the checkpoint has {size / 1e9:.2f} GB of weights in float32, and a network is "
            f"published as one object of S3, {LARGEST_OBJECT_BYTES / 1e9:.2f} GB at most; choose a "
            "smaller model, or export it in FP16 yourself and name that as `source.onnx`."
        )
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


DATATYPES = {"int64": "INT64", "int32": "INT32", "float32": "FP32"}
EPOCH = (1980, 1, 1, 0, 0, 0)
OTHERS = "Choose onnxruntime, onnxruntime-cuda or tensorrt as `serving.runtime`"
NOT_CARRIED = frozenset((".data/serialization_id",))
"""Entries with the process' own numbers."""


def write_program(
    source: Exported, feeds: Sequence[Feed], path: Path, *, longest: int | None
) -> float:
    """Write the program, and return its largest difference from the source's answers to feeds.

    `longest` bounds the sequence of texts. Raises SourceFault.
    """
    example = next(feed for feed in feeds if len(feed[source.inputs[0]]) > 1)
    raw = path.with_suffix(".raw.pt2")
    inputs = tuple(
        ProgramInput(
            name=name, datatype=DATATYPES[str(example[name].dtype)], rank=example[name].ndim
        )
        for name in source.inputs
    )
    try:
        _export(source, example, raw, longest=longest)
        _rewrite(raw, path, ProgramSignature(inputs=inputs, outputs=(source.output,)))
    except OSError:
        raise
    except Exception as error:
        raise SourceFault(
            f"the source cannot be exported by torch.export ({one_line(error)}). {OTHERS}."
        ) from error
    finally:
        raw.unlink(missing_ok=True)
    try:
        program = ExportedProgram(path)
    except SourceFault as error:
        raise SourceFault(f"{one_line(error)} {OTHERS}.") from error
    return largest_difference(source, program, feeds)


def _export(source: Exported, example: Feed, path: Path, *, longest: int | None) -> None:
    dimension = torch.export.Dim
    axes: dict[int, Any] = {0: dimension("batch", min=1)}
    if not isinstance(source, ImageModel) and longest is not None:
        axes[1] = dimension("sequence", min=1, max=max(longest, 2))
    tensors = tuple(torch.from_numpy(example[name]) for name in source.inputs)
    with torch.no_grad(), warnings.catch_warnings():
        # The comparison that follows decides.
        warnings.simplefilter("ignore")
        exported = torch.export.export(
            source.module,
            tensors,
            dynamic_shapes=(tuple(axes for _ in tensors),),
            strict=False,
        )
        torch.export.save(exported, str(path))


def _rewrite(raw: Path, path: Path, signature: ProgramSignature) -> None:
    """Copy a program's entries, in one order and without dates, but for what servers refuse."""
    with zipfile.ZipFile(raw) as source, zipfile.ZipFile(path, "w") as target:
        entries = {name.partition("/")[2]: name for name in source.namelist()}
        entries[SIGNATURE_FILE] = ""
        for name in sorted(set(entries) - NOT_CARRIED):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", date_time=EPOCH)
            if name == SIGNATURE_FILE:
                target.writestr(entry, signature.to_bytes())
            elif name == SAMPLE_INPUTS:
                target.writestr(entry, b"")
            elif name == GRAPH_FILE:
                target.writestr(entry, _plain_graph(source.read(entries[name])))
            else:
                target.writestr(entry, source.read(entries[name]))


def _plain_graph(data: bytes) -> bytes:
    """Return a graph without guards, and without its nodes' traces of this machine's files."""
    document = json.loads(data)
    document["guards_code"] = []
    for node in document["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    return json.dumps(document, sort_keys=True).encode()
