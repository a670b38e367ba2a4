"""What follows an encoder: token vectors pooled to one vector, and the checkpoint's heads.

Of a checkpoint it is a module; behind the tokens of a given ONNX file it is added as nodes.

The poolings are those of sentence-transformers' Pooling, written with operators that TensorRT takes
in every precision: no index of a token is looked up.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx
import torch
from onnx import compose, helper, version_converter

from engine_build.datasets.dataset import ATTENTION_MASK
from engine_build.errors import SourceFault
from engine_build.onnx_graph.onnx_file import opset
from engine_build.sources.embedding import VECTOR
from onboarding.manifest import TensorRecord
from onboarding.source_spec import PoolingSpec
from onboarding.values import LARGEST_EXPORT_OPSET

LOWEST = -65504.0
"""The lowest number of FP16; it stands where a token is padding, and a maximum never takes it."""
LEAST = 1e-9
"""Added rows of a batch may hold no token."""


class PoolingHead(torch.nn.Module):  # type: ignore[misc]
    """Token vectors [batch, sequence, width] and their mask [batch, sequence] to one vector a row.

    Several poolings are concatenated in their order; `heads` are modules of sentence-transformers.
    `normalize` divides the vectors by their lengths in the end.
    """

    def __init__(
        self, poolings: Sequence[str], heads: Sequence[Any] = (), *, normalize: bool = False
    ) -> None:
        super().__init__()
        self.poolings = tuple(poolings)
        self.heads = torch.nn.ModuleList(heads)
        self.normalize = normalize

    def forward(self, tokens: Any, mask: Any) -> Any:
        """Return vectors [batch, values]."""
        pooled = [POOLERS[name](tokens, mask) for name in self.poolings]
        features = {VECTOR: pooled[0] if len(pooled) == 1 else torch.cat(pooled, 1)}
        for head in self.heads:
            features = head(features)
        vectors = features[VECTOR]
        return torch.nn.functional.normalize(vectors, p=2, dim=1) if self.normalize else vectors


def _weighted(tokens: Any, weights: Any, power: float) -> Any:
    column = weights.unsqueeze(-1).to(tokens.dtype)
    total = column.sum(1).clamp(min=LEAST)
    return (tokens * column).sum(1) / (total if power == 1.0 else total.sqrt())


def _weighted_mean(tokens: Any, mask: Any) -> Any:
    """Weigh each token by its place in the row; shares of the row's length fit FP16."""
    length = mask.shape[1]
    places = torch.arange(1, length + 1, device=mask.device).to(tokens.dtype)
    return _weighted(tokens, mask * (places / length), 1.0)


def _last(tokens: Any, mask: Any) -> Any:
    """Take the last token that is no padding: the one whose right neighbour is none."""
    after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    is_last = (mask * (1 - after)).unsqueeze(-1).to(tokens.dtype)
    return (tokens * is_last).sum(1)


POOLERS: dict[str, Callable[[Any, Any], Any]] = {
    # Rows are padded on the right, so the first token is never padding.
    "cls": lambda tokens, mask: tokens[:, 0],
    "max": lambda tokens, mask: tokens.masked_fill(mask.unsqueeze(-1) == 0, LOWEST).amax(1),
    "mean": partial(_weighted, power=1.0),
    "mean_sqrt_len_tokens": partial(_weighted, power=0.5),
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}

TOKENS = "last_hidden_state"
TOKEN_OUTPUTS = (TOKENS, "token_embeddings")
"""Names of the tokens' vectors in exports of transformers and of sentence-transformers."""
PREFIX = "pooling/"
"""Of everything added, so that no name of the network's own meets another."""


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
