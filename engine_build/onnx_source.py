"""An ONNX file as the float network: read, checked, and refused in a sentence when it is not one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from engine_build.errors import SourceFault
from engine_build.networks import Network
from engine_build.order import Order
from engine_build.ort import OrtNetwork
from engine_build.source import OnnxFile
from engine_build.text import TEXT_INPUTS, TextEncoder
from onboarding.manifest import TensorRecord


def network_of(source: OnnxFile, order: Order, folder: Path) -> Network:
    """The file as a network of a text task. Raises SourceFault."""
    assert order.longest_sequence is not None
    model = read_model(source.path)
    refuse_broken_weights(model)
    inputs = tuple(each.name for each in model.graph.input)
    if not {"input_ids", "attention_mask"} <= set(inputs) <= set(TEXT_INPUTS):
        raise SourceFault(f"{source.path.name} takes {', '.join(inputs)}; a text network takes {', '.join(TEXT_INPUTS)}.")
    if source.tokenizer is None:
        raise SourceFault(f"{source.path.name} has no tokenizer.json beside it; put it there, or name a checkpoint.")
    path = folder / "model.onnx"
    shutil.copyfile(source.path, path)
    tokenizer = folder / "tokenizer.json"
    shutil.copyfile(source.tokenizer, tokenizer)
    encoder = TextEncoder(tokenizer, inputs=inputs, longest=order.longest_sequence)
    rows = OrtNetwork(path).rows(encoder.feed(order.validation.values[:3]))
    if rows.ndim != 2 or len(rows) != 3 or not np.isfinite(rows).all():
        raise SourceFault(f"{source.path.name} gives {rows.shape} for 3 texts; it must give one finite vector for each.")
    return Network(
        precision="float",
        path=path,
        inputs=tensor_records(model.graph.input),
        outputs=tensor_records(model.graph.output),
        facts={"exporter": "none"},
        tokenizer=tokenizer,
    )


def tensor_records(tensors: Iterable[onnx.ValueInfoProto]) -> tuple[TensorRecord, ...]:
    """Names, KServe datatypes and shapes of a network's inputs or outputs; -1 is a dynamic axis."""
    return tuple(
        TensorRecord(
            name=each.name,
            datatype=_datatype(each.type.tensor_type.elem_type),
            shape=tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in each.type.tensor_type.shape.dim),
        )
        for each in tensors
    )


def _datatype(element: int) -> str:
    name = str(onnx.TensorProto.DataType.Name(element))
    return {"FLOAT": "FP32", "FLOAT16": "FP16", "DOUBLE": "FP64", "BFLOAT16": "BF16", "STRING": "BYTES"}.get(name, name)


def read_model(path: Path) -> onnx.ModelProto:
    """A parsed and checked ONNX file."""
    try:
        model = onnx.load(path, load_external_data=False)
        onnx.checker.check_model(model)
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        sentence = f"{path.name} is no valid ONNX file ({reason}); it may be damaged or cut short: export it again."
        raise SourceFault(sentence) from error
    return model


def refuse_broken_weights(model: onnx.ModelProto) -> None:
    """NaN and Inf in weights give plausible-looking engines; they are refused by name."""
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        # The mask is added as the lowest float, never as an infinity.
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise SourceFault(f"weight {weight.name} holds NaN or Inf; train or export the source again.")
