"""The source model as a PyTorch program, `model.pt2`, compared with the source.

torch.export writes the graph of aten's operators with dynamic axes. What a server would have to
evaluate or unpickle is left out of the file, and so is what tells of this machine: equal models
give equal bytes.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from container.pytorch.scan import (
    FOLDER,
    GRAPH_FILE,
    SAMPLE_INPUTS,
    SIGNATURE_FILE,
    ProgramInput,
    ProgramSignature,
)
from engine_build.datasets.dataset import Feed
from engine_build.errors import SourceFault, one_line
from engine_build.exported import ExportedProgram
from engine_build.sources.export import Exported, largest_difference
from engine_build.sources.image_model import ImageModel

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
