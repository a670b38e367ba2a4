"""An ONNX file as the float network of a task.

Its inputs, outputs and axes are those that a build serves.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Encoder, Feed, Shape
from engine_build.datasets.tensors import DATATYPES, ImageEncoder, TensorEncoder
from engine_build.datasets.text import TEXT_INPUTS, TextEncoder, read_tokenizer, save_padded
from engine_build.errors import SourceFault, one_line
from engine_build.onnx_graph.external_data import save_model
from engine_build.onnx_graph.network_store import Network, observed_outputs
from engine_build.onnx_graph.onnx_file import (
    free_own_names,
    opset,
    qdq_node_count,
    read_inlined,
    refuse_broken_weights,
    refuse_undefined_operators,
    tensor_records,
    with_table_rows,
)
from engine_build.onnx_graph.refusal import refuse_foreign_operators
from engine_build.ort import OrtNetwork
from engine_build.request import BuildRequest
from engine_build.sources.embedding import VECTOR, served_prompts
from engine_build.sources.head import HEADED, head_of
from engine_build.sources.image_processor import FILES, network_image_processor
from engine_build.store import sha256_of
from onboarding.keys import plugin_operators
from onboarding.manifest import TensorRecord
from onboarding.onnx_header import way_out_of
from onboarding.values import IMAGES, TEXT_TASKS, Task


def refuse_axes(
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    *,
    has_sequence: bool,
) -> None:
    """Refuse axes beside the batch, axis 0, and of inputs the sequence, axis 1, that have no size.

    Raises SourceFault.
    """
    if has_sequence and not any(record.shape[1:2] == (-1,) for record in tensor_records(inputs)):
        raise SourceFault(
            f"{name}: no input is dynamic in axis 1, but the optimization profiles have a "
            "sequence; remove `sequence` from the model file, or export axis 1 without a size."
        )
    for kind, values in (("input", inputs), ("output", outputs)):
        for record in tensor_records(values):
            if record.shape[:1] != (-1,):
                raise SourceFault(
                    f"{name}: {kind} {record.name!r} has no batch axis (its shape is "
                    f"{list(record.shape)}); export it with a dynamic first axis."
                )
    for value in inputs:
        dynamic = [
            f"axis {axis} ({dim.dim_param or 'no name'})"
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if axis > int(has_sequence) and not dim.HasField("dim_value")
        ]
        if dynamic:
            allowed = "the batch and, as axis 1, the sequence" if has_sequence else "the batch"
            raise SourceFault(
                f"{name}: input {value.name!r} is dynamic in {', '.join(dynamic)}; an engine's "
                f"dynamic axes are {allowed}: export the others with a fixed size."
            )


LARGEST_MIXING = 0.02
"""Relative difference that rounding may make between a sample alone and in a batch, in FP16 too."""
TINIEST = 1e-6
PLAIN_WEIGHTS_IR = 4
"""The first version of ONNX files whose weights need not be inputs."""


def read_network(source: Path, request: BuildRequest, folder: Path) -> Network:
    """Return the file as a network of the request's task. Raises SourceFault and NetworkRefused."""
    task, path = request.model.task, folder / "model.onnx"
    operators = plugin_operators(request.model)
    model, is_changed = read_inlined(source, operators)
    is_changed = _leave_weights_out(model) or is_changed
    is_changed = free_own_names(model) or is_changed
    refuse_broken_weights(model)
    refuse_undefined_operators(model, operators)
    refuse_foreign_operators(model)
    values = list(model.graph.input)
    if task == "text-embedding" and _ends_in_vectors(source.name, model, request):
        is_changed = True
    if is_changed:
        save_model(model, path)
    else:
        shutil.copyfile(source, path)
    outputs = tensor_records(model.graph.output)
    inputs = with_table_rows(model, tensor_records(values))
    _refuse_datatypes(source.name, (*inputs, *outputs))
    is_text = task in TEXT_TASKS
    if is_text:
        _refuse_other_text_network(source.name, inputs, outputs, task)
    has_sequence = request.longest_sequence is not None
    refuse_axes(source.name, values, model.graph.output, has_sequence=has_sequence)
    facts: dict[str, Any] = {
        "exporter": f"{model.producer_name} {model.producer_version}".strip()
        if model.producer_name
        else "unknown",
        "opset": opset(model),
        "nodes": len(model.graph.node),
    }
    if is_text or task == IMAGES:
        # The network's key holds the digest of the file alone.
        beside = (source.with_name(name) for name in ("tokenizer.json", "config.json", FILES[0]))
        facts |= {f"{path.name} sha256": sha256_of(path) for path in beside if path.is_file()}
    if qdq_nodes := qdq_node_count(model):
        facts["qdq_nodes"] = qdq_nodes
    head, images = None, None
    if task == IMAGES:
        images = network_image_processor(source, inputs, outputs)
        known = outputs[0].shape[-1]
        head = head_of(source.parent, task, scores=None if known == -1 else known)
    elif task in HEADED:
        head = head_of(source.parent, task, scores=_score_count(path, inputs, outputs[0]))
    if head is not None:
        facts["activation"] = head.activation
    return Network(
        precision="float",
        path=path,
        inputs=inputs,
        outputs=outputs,
        facts=facts,
        tokenizer=_tokenizer(source, folder) if is_text else None,
        labels=None if head is None else head.labels,
        prompts=served_prompts(source, request.model),
        image_processor=images,
    )


def read_reference(
    source: Path, network: Network, request: BuildRequest, folder: Path
) -> OrtNetwork:
    """Return the float network that a quantized one is judged against. Raises SourceFault."""
    model, is_changed = read_inlined(source)
    refuse_broken_weights(model)
    if qdq_node_count(model):
        raise SourceFault(
            f"accuracy.reference {source.name} holds QuantizeLinear and DequantizeLinear nodes "
            "itself; name the float network that the source was quantized from."
        )
    if request.model.task == "text-embedding" and _ends_in_vectors(source.name, model, request):
        is_changed = True
    path = folder / "model.onnx" if is_changed else source
    if is_changed:
        save_model(model, path)
    reference, source_network = OrtNetwork(path), OrtNetwork(network.path)
    feed = encoder_for(network, request.longest_sequence).feed(request.validation.values[:2])
    wrong = f"takes {', '.join(sorted(set(reference.inputs) - set(feed)))}, which the source lacks"
    if set(reference.inputs) <= set(feed):
        shape, expected = _rows(reference, feed).shape, source_network.rows(feed).shape
        if shape == expected:
            return reference
        wrong = f"answers with shape {list(shape)}, and the source with {list(expected)}"
    raise SourceFault(
        f"accuracy.reference {source.name} {wrong}; name the float network that the source was "
        "quantized from, with its inputs and outputs."
    )


def _ends_in_vectors(name: str, model: onnx.ModelProto, request: BuildRequest) -> bool:
    """Make the network give vectors of texts alone; False when it is left as it is."""
    outputs, pooling = tensor_records(model.graph.output), request.model.source.pooling
    if pooling is not None:
        from engine_build.sources.pooling import add_pooling

        add_pooling(name, model, outputs, pooling)
        return True
    vectors = [value for value in model.graph.output if value.name == VECTOR]
    if len(outputs) > 1 and vectors:
        del model.graph.output[:]
        model.graph.output.extend(vectors)
        return True
    return False


def _leave_weights_out(model: onnx.ModelProto) -> bool:
    """Take the weights out of the inputs, where old files list them too; True where some were."""
    weights = {weight.name for weight in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in weights]
    if len(values) == len(model.graph.input):
        return False
    del model.graph.input[:]
    model.graph.input.extend(values)
    # Before it, each weight had to be an input.
    model.ir_version = max(model.ir_version, PLAIN_WEIGHTS_IR)
    return True


def encoder_for(network: Network, longest: int | None) -> Encoder:
    """Return what makes feeds of samples for a network."""
    if network.image_processor is not None:
        return ImageEncoder(network.image_processor)
    if network.tokenizer is None or longest is None:
        return TensorEncoder(network.inputs)
    return TextEncoder(
        network.tokenizer,
        inputs=network.input_names,
        longest=longest,
        prompt="" if network.prompts is None else network.prompts.prefix(),
        answers_tokens=network.answers_tokens,
    )


def check_answers(network: Network, request: BuildRequest) -> Network:
    """Run the network at every size that is served: one finite row for each sample.

    Returns the network with the sizes of its outputs. Raises SourceFault.
    """
    session, encoder = OrtNetwork(network.path), encoder_for(network, request.longest_sequence)
    if isinstance(encoder, TextEncoder):
        _refuse_other_vocabulary(session, encoder.largest_token())
    feeds = _feeds(encoder, request)
    for feed in feeds:
        rows, samples = _rows(session, feed), len(next(iter(feed.values())))
        if len(rows) != samples:
            raise SourceFault(
                f"the network gives {len(rows)} rows for {samples} samples; it must give one for "
                "each: export it with the batch as the first axis of every output."
            )
        faults = rows.size - int(np.isfinite(rows).sum())
        if faults:
            raise SourceFault(
                f"{faults} of {rows.size} values that the network gives for {samples} samples are "
                "NaN or infinite; each must be finite: run the source model on the first "
                "validation samples; if it gives them too, leave such samples out, else export it "
                "again."
            )
        _refuse_mixing(session, feed, rows)
    outputs = observed_outputs(network.outputs, session, feeds)
    if network.labels is not None and outputs[0].shape[-1] != len(network.labels):
        raise SourceFault(
            f"the network gives {outputs[0].shape[-1]} scores, but the config.json beside it names "
            f"{len(network.labels)} classes; they are not a pair: correct id2label."
        )
    return dataclasses.replace(network, outputs=outputs)


def _refuse_mixing(session: OrtNetwork, feed: Feed, rows: Array) -> None:
    """Refuse rows that change each other's answers: servers batch requests of several callers."""
    alone = _rows(session, {name: array[-1:] for name, array in feed.items()})
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


def _refuse_datatypes(name: str, records: Sequence[TensorRecord]) -> None:
    for record in records:
        if record.datatype not in DATATYPES:
            raise SourceFault(
                f"{name}: {record.name!r} has datatype {record.datatype}, which TensorRT does not "
                f"take as it is; allowed: {', '.join(DATATYPES)}; {way_out_of(record.datatype)}."
            )


def _refuse_other_text_network(
    name: str, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord], task: Task
) -> None:
    names = [record.name for record in inputs]
    if not {"input_ids", ATTENTION_MASK} <= set(names) <= set(TEXT_INPUTS):
        raise SourceFault(
            f"{name} takes {', '.join(names)}; a text network takes {', '.join(TEXT_INPUTS)}."
        )
    listed = ", ".join(f"{record.name} {list(record.shape)}" for record in outputs)
    is_of_tokens = task == "token-classification"
    if is_of_tokens and (len(outputs) != 1 or len(outputs[0].shape) != 3):
        raise SourceFault(
            f"{name} gives {listed}; a token classifier gives one output, [batch, sequence, "
            "labels]: export its logits alone."
        )
    if not is_of_tokens and (len(outputs) != 1 or len(outputs[0].shape) != 2):
        way_out = "export it so."
        if task == "text-embedding" and any(len(record.shape) == 3 for record in outputs):
            way_out = (
                "let the build add the pooling, with `pooling: {mode: mean, normalize: true}` "
                "under `source` in the model file; the model's 1_Pooling/config.json names the "
                "mode, and its modules.json has Normalize where it normalizes."
            )
        raise SourceFault(
            f"{name} gives {listed}; a text network gives one output, [batch, values]: {way_out}"
        )


def _score_count(path: Path, inputs: Sequence[TensorRecord], logits: TensorRecord) -> int:
    """Return the scores of a text, or of a token: one run tells what the file leaves open."""
    if logits.shape[-1] != -1:
        return logits.shape[-1]
    feed: Feed = {
        record.name: np.full((1, 2), record.name == ATTENTION_MASK, np.int64) for record in inputs
    }
    tokens = 2 if len(logits.shape) == 3 else 1
    return int(_rows(OrtNetwork(path), feed).shape[1]) // tokens


def _tokenizer(source: Path, folder: Path) -> Path:
    path = source.with_name("tokenizer.json")
    if not path.is_file():
        raise SourceFault(
            f"{source.name} has no tokenizer.json beside it; put it there, or name a checkpoint."
        )
    return save_padded(read_tokenizer(path), folder)


def _refuse_other_vocabulary(session: OrtNetwork, feed: Feed) -> None:
    try:
        session.rows(feed)
    except Exception as error:
        raise SourceFault(
            f"the tokenizer gives token {feed['input_ids'][0, 0]}, on which the network fails "
            f"({one_line(error, 200)}); they are not a pair: put the network's own tokenizer.json "
            "beside it."
        ) from error


def _rows(session: OrtNetwork, feed: Feed) -> Array:
    try:
        return session.rows(feed)
    except SourceFault:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())
        raise SourceFault(
            f"the network does not run at {shapes} ({one_line(error)}); export it for every size "
            "of the profiles."
        ) from error
