"""The facts of an ONNX file: a network of texts with a tokenizer beside it, or one of arrays."""

from __future__ import annotations

from typing import get_args

from onboarding.checkpoint import CONFIGURATION
from onboarding.onnx_header import (
    TAKEN,
    NetworkTensor,
    OnnxHeader,
    read_onnx_header,
    way_out_of,
)
from onboarding.source_spec import PoolingSpec
from onboarding.values import PoolingMode
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.inspection.facts import (
    TOKENIZER,
    SourceFacts,
    metric_of,
    named_task,
    pooling_mode,
    read_json,
    require_task,
    task_notes,
    tasks,
    token_limit,
)
from roundhouse.inspection.source_files import MODULES, POOLING_FILES, SourceFiles

TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
POOLING = POOLING_FILES[0]
MODES = get_args(PoolingMode)


def network_facts(files: SourceFiles, task: str | None, mode: str | None = None) -> SourceFacts:
    """Return the facts of an ONNX file; `task` and the pooling's `mode` are what the user says.

    Raises RoundhouseError.
    """
    assert files.network is not None
    try:
        header = read_onnx_header(files.network)
    except ValueError as error:
        raise RoundhouseError(f"{files.title}: {error}; export the network again.") from error
    except OSError as error:
        raise RoundhouseError(f"{files.title}: cannot be read ({error.strerror}).") from error
    names = {tensor.name for tensor in header.inputs}
    is_text = {"input_ids", "attention_mask"} <= names <= TEXT_INPUTS
    if task is not None and (task != "tensors") is not is_text:
        takes = ", ".join(map(str, header.inputs))
        allowed = ", ".join(tasks()) if is_text else "tensors"
        raise UsageError(
            f"--task {task}: does not fit {files.title}, which takes {takes}; allowed: {allowed}."
        )
    if is_text and task != "tensors":
        return _text_facts(files, header, task, mode)
    if mode is not None:
        raise UsageError(f"--pooling {mode}: is for networks of texts; leave it out.")
    return _tensor_facts(files, header)


def _text_facts(
    files: SourceFiles, header: OnnxHeader, task: str | None, mode: str | None
) -> SourceFacts:
    if TOKENIZER not in files.names:
        raise RoundhouseError(
            f"{files.title}: takes tokens, and no {TOKENIZER} lies beside it; put the network's "
            "own there."
        )
    output = header.outputs[0]
    found, because = (task, "as --task says") if task else _text_task(files, header)
    if found is None:
        raise UsageError(
            f"{files.title}: gives {output}, which names no task ({because}); say it with --task: "
            f"{', '.join(name for name in tasks() if name != 'tensors')}."
        )
    require_task(files, found, because)
    gives_tokens = output.shape is not None and len(output.shape) == 3
    pooling = None
    if found == "text-embedding" and gives_tokens:
        pooling = _pooling(files, output, mode)
    elif mode is not None:
        raise UsageError(
            f"--pooling {mode}: is for networks that give a vector for each token; {files.title} "
            f"gives {output}. Leave it out."
        )
    config = read_json(files, CONFIGURATION)
    longest, longest_because = token_limit(files, config)
    notes = task_notes(files, config, found) if found != "text-embedding" and config else ()
    return SourceFacts(
        task=found,
        because=because,
        notes=(*_network_notes(header), *notes),
        is_quantized=header.is_quantized,
        longest=longest,
        longest_because=longest_because,
        pooling=pooling,
        metric=metric_of(config, found) if config else None,
    )


def _pooling(files: SourceFiles, output: NetworkTensor, mode: str | None) -> PoolingSpec:
    """Return what the user or the files beside the network say. Raises UsageError."""
    modules = files.read(MODULES) if MODULES in files.names else None
    normalizes = modules is not None and b"Normalize" in modules
    declared = read_json(files, POOLING) if POOLING in files.names else None
    found = mode if mode is not None or declared is None else pooling_mode(declared)
    if found not in MODES:
        named = "" if found is None else f" ({POOLING} says {found!r})"
        raise UsageError(
            f"{files.title}: gives {output}, a vector for each token{named}; say with --pooling "
            f"how they become one: {', '.join(MODES)}, as the model's card or its {POOLING} says."
        )
    return PoolingSpec.model_validate({"mode": found, "normalize": normalizes})


def _text_task(files: SourceFiles, header: OnnxHeader) -> tuple[str | None, str]:
    """Return the task by the configuration beside the network, else by its output's name."""
    if CONFIGURATION in files.names or "modules.json" in files.names:
        task, because = named_task(files, read_json(files, CONFIGURATION))
        if task is not None:
            return task, f"{because}, beside the network"
    name = header.outputs[0].name
    if "embedding" in name or name in ("last_hidden_state", "pooler_output"):
        return "text-embedding", f"its output is {name}"
    return None, f"no {CONFIGURATION} with an architecture lies beside it"


def _tensor_facts(files: SourceFiles, header: OnnxHeader) -> SourceFacts:
    _refuse_unfit_inputs(files, header)
    shapes = [tensor.shape or () for tensor in header.inputs]
    gives = ", ".join(map(str, header.outputs))
    return SourceFacts(
        task="tensors",
        because=f"takes {', '.join(map(str, header.inputs))}",
        notes=(*_network_notes(header), f"gives {gives} (-1: any size)"),
        is_quantized=header.is_quantized,
        has_sequence=any(shape[1:2] == (-1,) for shape in shapes),
        longest_because="the file names no limit of axis 1",
        inputs=header.inputs,
    )


def _network_notes(header: OnnxHeader) -> list[str]:
    notes = [f"exported by {header.exporter}"] if header.exporter else []
    if header.is_quantized:
        notes.append("holds Q/DQ nodes: it is quantized already, and kept as it is")
    return notes


def _refuse_unfit_inputs(files: SourceFiles, header: OnnxHeader) -> None:
    """Refuse what a build refuses: other datatypes, no batch axis, other dynamic axes."""
    if not header.inputs:
        raise RoundhouseError(f"{files.title}: takes no input; export a network with one.")
    for tensor in (*header.inputs, *header.outputs):
        if tensor.datatype not in TAKEN:
            kind = "input" if tensor in header.inputs else "output"
            raise RoundhouseError(
                f"{files.title}: {kind} {tensor} has a datatype that TensorRT does not take; "
                f"allowed: {', '.join(TAKEN)}; {way_out_of(tensor.datatype)}."
            )
    for tensor in header.inputs:
        if tensor.shape is None or tensor.shape[:1] != (-1,):
            raise RoundhouseError(
                f"{files.title}: input {tensor} has no dynamic first axis, so no requests can "
                "share a batch; export it with dynamic axis 0."
            )
        if -1 in tensor.shape[2:]:
            raise RoundhouseError(
                f"{files.title}: input {tensor} is dynamic beyond axis 1; an engine's dynamic axes "
                "are the batch and, as axis 1, a sequence: export the others with a fixed size."
            )
