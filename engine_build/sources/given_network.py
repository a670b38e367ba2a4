"""An ONNX file as the float network of a task.

Its inputs, outputs and axes are those that a build serves.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Encoder, Feed, Shape
from engine_build.datasets.tensors import DATATYPES, TensorEncoder
from engine_build.datasets.text import TEXT_INPUTS, TextEncoder
from engine_build.datasets.tokenizer import read_tokenizer, save_padded
from engine_build.errors import SourceFault
from engine_build.onnx_graph.network_store import Network, observed_outputs
from engine_build.onnx_graph.onnx_file import (
    opset,
    qdq_node_count,
    read_model,
    refuse_broken_weights,
    tensor_records,
)
from engine_build.onnx_graph.refusal import refuse_foreign_operators
from engine_build.ort import OrtNetwork
from engine_build.request import BuildRequest
from engine_build.sources.checkpoint import class_names, read_json
from engine_build.sources.source import OnnxFile
from engine_build.store import sha256_of
from onboarding.manifest import TensorRecord

LARGEST_MIXING = 0.02
"""Relative difference that rounding may make between one sample alone and in a batch, in half
precision too.
"""
TINIEST = 1e-6


def read_network(source: OnnxFile, request: BuildRequest, folder: Path) -> Network:
    """The file as a network of the request's task. Raises SourceFault and NetworkRefused."""
    name, model = source.path.name, read_model(source.path)
    refuse_broken_weights(model)
    refuse_foreign_operators(model)
    inputs, outputs = _inputs(model), tensor_records(model.graph.output)
    is_text = request.model.task.startswith("text-")
    _refuse_datatypes(name, (*inputs, *outputs))
    if is_text:
        _refuse_other_text_network(name, inputs, outputs)
    refuse_axes(name, model, has_sequence=request.longest_sequence is not None)
    path = folder / "model.onnx"
    shutil.copyfile(source.path, path)
    tokenizer = _tokenizer(source, folder) if is_text else None
    facts = {
        "exporter": _producer(model),
        "opset": opset(model),
        "nodes": len(model.graph.node),
        **_beside(source, is_text),
    }
    if qdq_nodes := qdq_node_count(model):
        facts["qdq_nodes"] = qdq_nodes
    del model
    return Network(
        precision="float",
        path=path,
        inputs=inputs,
        outputs=outputs,
        facts=facts,
        tokenizer=tokenizer,
        labels=class_names(read_json(source.beside("config.json"), {}))
        if request.model.task == "text-classification"
        else None,
    )


def encoder_for(network: Network, longest: int | None) -> Encoder:
    """What makes feeds of samples for a network."""
    if network.tokenizer is None or longest is None:
        return TensorEncoder(network.inputs)
    return TextEncoder(network.tokenizer, inputs=network.input_names, longest=longest)


def check_answers(network: Network, request: BuildRequest) -> Network:
    """The network, run at every size that is served: one finite row for each sample.

    Raises SourceFault.
    """
    answer, encoder = OrtNetwork(network.path), encoder_for(network, request.longest_sequence)
    if isinstance(encoder, TextEncoder):
        _refuse_other_vocabulary(answer, encoder.largest_token())
    feeds = _feeds(encoder, request)
    for feed in feeds:
        rows, wanted = _rows(answer, feed), len(next(iter(feed.values())))
        if len(rows) != wanted or not np.isfinite(rows).all():
            raise SourceFault(
                f"the network gives {len(rows)} rows for {wanted} samples, "
                f"{int(np.isfinite(rows).sum())} of {rows.size} values "
                "finite; it must give one finite row for each."
            )
        _refuse_mixing(answer, feed, rows)
    outputs = observed_outputs(network.outputs, answer, feeds)
    if network.labels is not None and outputs[0].shape[1] != len(network.labels):
        raise SourceFault(
            f"the network gives {outputs[0].shape[1]} scores, but the config.json beside it names "
            f"{len(network.labels)} classes; they are not a pair: correct id2label."
        )
    return dataclasses.replace(network, outputs=outputs)


def _refuse_mixing(answer: OrtNetwork, feed: Feed, rows: Array) -> None:
    """Refuse a network in which one row changes another's answer.

    A server puts requests of several callers into one batch.
    """
    alone = _rows(answer, {name: array[-1:] for name, array in feed.items()})
    difference = np.linalg.norm(alone - rows[-1:]) if alone.shape == rows[-1:].shape else np.inf
    if difference > LARGEST_MIXING * np.linalg.norm(alone) + TINIEST:
        raise SourceFault(
            f"the network answers a sample differently alone and in a batch of {len(rows)} (by "
            f"{difference:.2g}); a row's answer must not depend on the others, nor on chance: "
            "export it in evaluation mode."
        )


def _feeds(encoder: Encoder, request: BuildRequest) -> list[Feed]:
    samples = request.validation.values
    feeds = [encoder.feed(samples[:1]), encoder.feed(samples[:3])]
    for profile in request.model.engine.optimization_profiles:
        sizes = (None,) if profile.sequence is None else profile.sequence
        feeds += [encoder.shaped(samples[:2], Shape(batch=2, sequence=size)) for size in sizes]
    return feeds


def refuse_axes(name: str, model: onnx.ModelProto, *, has_sequence: bool) -> None:
    """Axis 0 of every input and output is the batch; axis 1 may be the sequence.

    Every other one is fixed.
    """
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [item for item in model.graph.input if item.name not in weights]
    if has_sequence and not any(
        _is_dynamic(entry.type.tensor_type.shape.dim, 1) for entry in inputs
    ):
        raise SourceFault(
            f"{name}: no input is dynamic in axis 1, but the optimization profiles have a "
            "sequence; remove `sequence` from the model file, or export axis 1 without a size."
        )
    for kind, tensors in (("input", inputs), ("output", model.graph.output)):
        for tensor in tensors:
            dims = tensor.type.tensor_type.shape.dim
            if not dims or dims[0].HasField("dim_value"):
                raise SourceFault(
                    f"{name}: {kind} {tensor.name!r} has no batch axis (its shape is "
                    f"{_shape(dims)}); export it with a dynamic first axis."
                )
            others = [
                axis
                for axis, dim in enumerate(dims)
                if axis > int(has_sequence) and not dim.HasField("dim_value")
            ]
            if others and kind == "input":
                listed = ", ".join(
                    f"axis {axis} ({dims[axis].dim_param or 'no name'})" for axis in others
                )
                allowed = "the batch and, as axis 1, the sequence" if has_sequence else "the batch"
                raise SourceFault(
                    f"{name}: {kind} {tensor.name!r} is dynamic in {listed}; an engine's dynamic "
                    f"axes are {allowed}: export the others with a fixed size."
                )


def _inputs(model: onnx.ModelProto) -> tuple[TensorRecord, ...]:
    """Old files list their weights as inputs too."""
    weights = {weight.name for weight in model.graph.initializer}
    return tensor_records(item for item in model.graph.input if item.name not in weights)


def _refuse_datatypes(name: str, records: Sequence[TensorRecord]) -> None:
    for record in records:
        if record.datatype not in DATATYPES:
            raise SourceFault(
                f"{name}: {record.name!r} has datatype {record.datatype}, which TensorRT does not "
                f"take as it is; allowed: {', '.join(DATATYPES)}. Convert it inside the program "
                "that calls, and export again."
            )


def _refuse_other_text_network(
    name: str, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord]
) -> None:
    names = [record.name for record in inputs]
    if not {"input_ids", ATTENTION_MASK} <= set(names) <= set(TEXT_INPUTS):
        raise SourceFault(
            f"{name} takes {', '.join(names)}; a text network takes {', '.join(TEXT_INPUTS)}."
        )
    if len(outputs) != 1 or len(outputs[0].shape) != 2:
        listed = ", ".join(f"{record.name} {list(record.shape)}" for record in outputs)
        raise SourceFault(
            f"{name} gives {listed}; a text network gives one output, [batch, values]: put the "
            "pooling into it."
        )


def _tokenizer(source: OnnxFile, folder: Path) -> Path:
    if source.tokenizer is None:
        raise SourceFault(
            f"{source.path.name} has no tokenizer.json beside it; put it there, or name a "
            "checkpoint."
        )
    return save_padded(read_tokenizer(source.tokenizer), folder)


def _beside(source: OnnxFile, is_text: bool) -> dict[str, str]:
    """Digests of what lies beside the file: the network's key holds the file's own only."""
    names = ("tokenizer.json", "config.json") if is_text else ()
    return {
        f"{name} sha256": sha256_of(source.beside(name))
        for name in names
        if source.beside(name).is_file()
    }


def _refuse_other_vocabulary(answer: OrtNetwork, feed: Feed) -> None:
    try:
        answer.rows(feed)
    except Exception as error:
        token, reason = feed["input_ids"][0, 0], " ".join(str(error).split())[:200]
        raise SourceFault(
            f"the tokenizer gives token {token}, on which the network fails ({reason}); they are "
            "not a pair: put the network's own tokenizer.json beside it."
        ) from error


def _rows(answer: OrtNetwork, feed: Feed) -> Array:
    try:
        return answer.rows(feed)
    except SourceFault:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())
        sentence = (
            f"the network does not run at {shapes} ({reason}); export it for every size of the "
            "profiles."
        )
        raise SourceFault(sentence) from error


def _producer(model: onnx.ModelProto) -> str:
    return (
        " ".join(filter(None, (model.producer_name, model.producer_version)))
        if model.producer_name
        else "unknown"
    )


def _is_dynamic(dims: Sequence[onnx.TensorShapeProto.Dimension], axis: int) -> bool:
    return len(dims) > axis and not dims[axis].HasField("dim_value")


def _shape(dims: Sequence[onnx.TensorShapeProto.Dimension]) -> str:
    return str(
        [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]
    )
