"""A pooling behind an ONNX file that gives vectors of tokens: the nodes that a checkpoint gets."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import onnx
from onnx import compose, helper, version_converter

from engine_build.datasets.dataset import ATTENTION_MASK
from engine_build.errors import SourceFault
from engine_build.onnx_graph.onnx_file import opset
from onboarding.manifest import TensorRecord
from onboarding.source_spec import PoolingSpec
from onboarding.values import LARGEST_EXPORT_OPSET

PREFIX = "pooling/"
"""Of everything added, so that no name of the network's own meets another."""
TOKENS, VECTOR = "last_hidden_state", "sentence_embedding"
TOKEN_OUTPUTS = (TOKENS, "token_embeddings")
"""Names of the tokens' vectors in exports of transformers and of sentence-transformers."""


def add_pooling(
    name: str,
    model: onnx.ModelProto,
    outputs: Sequence[TensorRecord],
    pooling: PoolingSpec,
) -> None:
    """Make a network's one output the pooled vectors, [batch, values]. Raises SourceFault.

    `outputs` are the records of its own outputs.
    """
    tokens = _token_output(name, outputs)
    values = {value.name: value for value in (*model.graph.output, *model.graph.input)}
    mask = values.get(ATTENTION_MASK)
    if mask is None:
        raise SourceFault(f"{name} has no input {ATTENTION_MASK}, which pooling needs.")
    head = _head(pooling, values[tokens.name], mask, opset(model))
    names = {f"{PREFIX}{TOKENS}": tokens.name, f"{PREFIX}{ATTENTION_MASK}": ATTENTION_MASK}
    for node in head.graph.node:
        node.input[:] = [names.get(given, given) for given in node.input]
    model.graph.node.extend(head.graph.node)
    model.graph.initializer.extend(head.graph.initializer)
    del model.graph.output[:]
    model.graph.output.extend(head.graph.output)


def keep_output(model: onnx.ModelProto, name: str) -> None:
    """Make one of a network's outputs its only one."""
    kept = [value for value in model.graph.output if value.name == name]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def _token_output(name: str, outputs: Sequence[TensorRecord]) -> TensorRecord:
    found = [record for record in outputs if len(record.shape) == 3]
    named = [record for record in found if record.name in TOKEN_OUTPUTS]
    if len(found) != 1 and len(named) != 1:
        listed = ", ".join(f"{record.name} {list(record.shape)}" for record in outputs)
        raise SourceFault(
            f"{name} gives {listed}, but `source.pooling` pools one output [batch, sequence, "
            "width]; take the key out, or export the network with that output."
        )
    return (named if len(named) == 1 else found)[0]


def _head(
    pooling: PoolingSpec, tokens: onnx.ValueInfoProto, mask: onnx.ValueInfoProto, version: int
) -> onnx.ModelProto:
    """Return the pooling alone as a network of an opset, its names prefixed."""
    import torch

    from engine_build.sources.pooling import PoolingHead

    types = [
        torch.from_numpy(
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).type([0])
        ).dtype
        for value in (tokens, mask)
    ]
    width = tokens.type.tensor_type.shape.dim[2].dim_value or 2
    example = (torch.ones(2, 3, width, dtype=types[0]), torch.ones(2, 3, dtype=types[1]))
    file = io.BytesIO()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            PoolingHead((pooling.mode,), normalize=pooling.normalize).eval(),
            example,
            file,
            input_names=[TOKENS, ATTENTION_MASK],
            output_names=[VECTOR],
            dynamic_axes={
                TOKENS: {0: "batch", 1: "sequence"},
                ATTENTION_MASK: {0: "batch", 1: "sequence"},
                VECTOR: {0: "batch"},
            },
            opset_version=min(version, LARGEST_EXPORT_OPSET),
            dynamo=False,
        )
    head = onnx.load_model_from_string(file.getvalue())
    if version > LARGEST_EXPORT_OPSET:
        # Beyond what torch traces.
        head = version_converter.convert_version(head, version)
    return compose.add_prefix(head, PREFIX)
