"""What a model file must say of a source, and where the source itself says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from onboarding.checkpoint import CONFIGURATION
from onboarding.onnx_header import TAKEN, NetworkTensor, OnnxHeader, read_onnx_header, way_out_of
from onboarding.rules.task_rules import METRICS, UNBUILT
from onboarding.source_spec import PoolingSpec
from onboarding.values import IMAGES, PIPELINE_BEGIN, PIPELINE_HEADS, Metric, PoolingMode, Task
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.inspection.source_files import MODULES, POOLING_FILES, WEIGHTS, SourceFiles

ARCHITECTURES = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForImageClassification": "image-classification",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text-generation",
    "Model": "text-embedding",
}
"""Tasks by the end of an architecture's name in config.json; the first that fits counts."""
POSITIONS_FROM_PADDING = ("camembert", "data2vec-text", "longformer", "mpnet", "roberta")
"""Model types, or ends of them, that count positions from the padding token's number + 1."""
LONGEST = ("max_position_embeddings", "n_positions", "max_seq_len")
UNLIMITED = 1_000_000
"""tokenizer_config.json names a number beyond it where there is no limit."""
ADAPTER, TOKENIZER = "adapter_config.json", "tokenizer.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
RANKING: Task | str = "text-ranking"
TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
POOLING = POOLING_FILES[0]
MODES = get_args(PoolingMode)


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """What was found; `because` says where."""

    task: str
    because: str
    longest: int | None = None
    """Most tokens that the source takes; None: no sequence, or no limit that it tells."""
    longest_because: str = "the source names no limit"
    has_sequence: bool = True
    inputs: tuple[NetworkTensor, ...] = ()
    """Of task tensors."""
    pooling: PoolingSpec | None = None
    """Of a network that gives a vector for each token."""
    metric: Metric | None = None
    """Where the task's first one does not fit."""
    is_quantized: bool = False
    """True for an ONNX file that holds Q/DQ nodes: it takes no calibration."""


def tasks() -> tuple[str, ...]:
    """Return the tasks that engines are built for."""
    return tuple(task for task in METRICS if task not in UNBUILT)


def checkpoint_facts(files: SourceFiles, task: str | None) -> SourceFacts:
    """Return the facts of a checkpoint; `task` is what the user says. Raises RoundhouseError."""
    _refuse_incomplete(files)
    config = read_json(files, CONFIGURATION)
    found, because = named_task(files, config)
    if task is not None:
        found, because = task, "as --task says"
    if found is None:
        raise UsageError(
            f"{files.title}: its task is not certain ({because}); say it with --task: "
            f"{', '.join(name for name in tasks() if name != 'tensors')}."
        )
    require_task(files, found, because)
    if found == "text-embedding":
        _refuse_other_modules(files)
    if found == IMAGES:
        if not files.names & set(PROCESSORS):
            raise RoundhouseError(
                f"{files.title}: has no {PROCESSORS[0]}, which says how images become the "
                "network's input; save it with the checkpoint's image processor."
            )
        return SourceFacts(task=found, because=because, has_sequence=False)
    if TOKENIZER not in files.names:
        raise RoundhouseError(
            f"{files.title}: has no {TOKENIZER}; load its tokenizer with transformers' "
            "AutoTokenizer and save it into the checkpoint."
        )
    longest, longest_because = token_limit(files, config)
    return SourceFacts(
        task=found,
        because=because,
        longest=longest,
        longest_because=longest_because,
        metric=metric_of(config, found),
    )


def metric_of(config: Mapping[str, Any], task: str) -> Metric | None:
    """Return the metric of a classifier of one label, which chooses none; else None."""
    if task not in ("text-classification", "token-classification"):
        return None
    return "relative_error" if _label_count(config) == 1 else None


def require_task(files: SourceFiles, task: str, because: str) -> None:
    """Raise RoundhouseError for a task that no engine is built for."""
    if task not in tasks():
        other = "export it to ONNX and serve it as task tensors: --onnx FILE"
        way_out = next((way_out for name, way_out in UNBUILT.items() if name == task), other)
        raise RoundhouseError(
            f"{files.title}: its task is {task} ({because}), and no engine is built for it; "
            f"{way_out}."
        )
    if task == "tensors":
        raise UsageError(
            f"--task tensors: needs an ONNX file, and {files.title} is a checkpoint; export it, "
            "or say what it was trained for."
        )


def _refuse_other_modules(files: SourceFiles) -> None:
    """Refuse a pipeline of sentence-transformers that no build takes. Raises RoundhouseError."""
    modules = _modules(files)
    kinds = tuple(str(module.get("type", "")).rsplit(".", 1)[-1] for module in modules)
    begins = kinds[: len(PIPELINE_BEGIN)] == PIPELINE_BEGIN
    if modules and not (begins and set(kinds[len(PIPELINE_BEGIN) :]) <= set(PIPELINE_HEADS)):
        raise RoundhouseError(
            f"{files.title}: {MODULES} names {', '.join(kinds)}; builds take "
            f"{', '.join(PIPELINE_BEGIN)}, and after them {', '.join(PIPELINE_HEADS)}. Export the "
            "whole pipeline to ONNX yourself, with one output [batch, values], and name it with "
            "--onnx."
        )
    folder = str(modules[0].get("path", "")) if modules else ""
    if folder and CONFIGURATION not in files.names:
        raise RoundhouseError(
            f"{files.title}: {MODULES} keeps its Transformer in {folder}; builds read it beside "
            f"{MODULES}: load the checkpoint with sentence-transformers and save it again, which "
            "writes it there."
        )


def _refuse_incomplete(files: SourceFiles) -> None:
    if ADAPTER in files.names:
        raise RoundhouseError(
            f"{files.title}: {ADAPTER} names a LoRA adapter, which no build applies; merge it with "
            "peft's merge_and_unload(), and save the model and its tokenizer."
        )
    if CONFIGURATION not in files.names:
        _refuse_other_modules(files)
        known = sorted(name for name in files.names if name.endswith(f"/{CONFIGURATION}"))
        folders = [name.removesuffix(f"/{CONFIGURATION}") for name in known]
        way_out = (
            f"name its folder with --path: {', '.join(folders[:6])}"
            if folders
            else ("name a checkpoint of transformers or sentence-transformers")
        )
        raise RoundhouseError(f"{files.title}: has no {CONFIGURATION}; {way_out}.")
    if not files.names & set(WEIGHTS):
        pickled = sorted(name for name in files.names if name.endswith((".bin", ".pt", ".pth")))
        has = f"; {pickled[0]} is a pickle, which no build reads" if pickled else ""
        raise RoundhouseError(
            f"{files.title}: has no {WEIGHTS[0]}{has}; save it with transformers, which writes "
            "safetensors."
        )


def named_task(files: SourceFiles, config: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the task, None where nothing names it, and where it stands."""
    settings = read_json(files, "config_sentence_transformers.json")
    names = [str(name) for name in _items(config.get("architectures"))]
    is_cross_encoder = (
        settings.get("model_type") == "CrossEncoder"
        or isinstance(config.get("sentence_transformers"), Mapping)
        or "sbert_ce_default_activation_function" in config
    )
    if is_cross_encoder and any(name.endswith("ForSequenceClassification") for name in names):
        if _label_count(config) <= 1:
            return RANKING, f"{CONFIGURATION}: a CrossEncoder of {names[0]} with one score"
        return "text-classification", f"{CONFIGURATION}: a CrossEncoder of {names[0]}"
    if MODULES in files.names:
        return "text-embedding", f"{MODULES}: a pipeline of sentence-transformers"
    for name in names:
        for end, task in ARCHITECTURES.items():
            if name.endswith(end):
                return task, f"{CONFIGURATION}: {name}"
    return None, f"{CONFIGURATION} names {', '.join(names) or 'no architecture'}"


def _modules(files: SourceFiles) -> list[Mapping[str, Any]]:
    content = files.read(MODULES) if MODULES in files.names else None
    items = [] if content is None else _items(_parse(files, MODULES, content))
    return [module for module in items if isinstance(module, Mapping)]


def pooling_mode(config: Mapping[str, Any]) -> str:
    """Return the modes of sentence-transformers' Pooling: a name since version 6, or booleans."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return " + ".join(map(str, mode)) if isinstance(mode, list) else str(mode)
    begin = "pooling_mode_"
    modes = [
        name.removeprefix(begin)
        for name, on in config.items()
        if name.startswith(begin) and on is True
    ]
    return " + ".join(modes).replace("_tokens", "").replace("_token", "") or "mean"


def _label_count(config: Mapping[str, Any]) -> int:
    names = config.get("id2label")
    if isinstance(names, list):
        raise RoundhouseError(
            f"{CONFIGURATION} has id2label as a list, which transformers does not read; write an "
            f"object of numbers and names: {json.dumps(dict(enumerate(names[:3])))[:200]}."
        )
    if isinstance(names, Mapping):
        return len(names)
    count = config.get("num_labels")
    return count if isinstance(count, int) else 2


def token_limit(files: SourceFiles, config: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the least of what the source's files allow, and which says so."""
    text = config.get("text_config")
    config = {**config, **text} if isinstance(text, Mapping) else config
    limits: list[tuple[int, str]] = []
    for name in LONGEST:
        if _is_size(config.get(name)):
            padding = config.get("pad_token_id")
            counts_from = str(config.get("model_type", "")).endswith(POSITIONS_FROM_PADDING)
            offset = padding + 1 if counts_from and isinstance(padding, int) else 0
            limits.append((config[name] - offset, f"{CONFIGURATION}: {name}"))
            break
    tokenizer = read_json(files, "tokenizer_config.json").get("model_max_length")
    if isinstance(tokenizer, int) and _is_size(tokenizer) and tokenizer < UNLIMITED:
        limits.append((tokenizer, "tokenizer_config.json: model_max_length"))
    for name in sorted(files.names):
        if name.startswith("sentence_") and name.endswith("_config.json"):
            size = read_json(files, name).get("max_seq_length")
            if isinstance(size, int) and _is_size(size):
                limits.append((size, f"{name}: max_seq_length"))
    return min(limits) if limits else (None, SourceFacts.longest_because)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 2


def read_json(files: SourceFiles, name: str) -> dict[str, Any]:
    """Return an object of a source's file; empty where there is none. Raises RoundhouseError."""
    content = files.read(name) if name in files.names else None
    parsed = {} if content is None else _parse(files, name, content)
    if not isinstance(parsed, dict):
        raise RoundhouseError(f"{files.title}: {name} holds no JSON object; save it again.")
    return parsed


def _parse(files: SourceFiles, name: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RoundhouseError(
            f"{files.title}: {name} is no JSON; fetch or save it again."
        ) from error


def _items(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


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
    return SourceFacts(
        task=found,
        because=because,
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
    return SourceFacts(
        task="tensors",
        because=f"takes {', '.join(map(str, header.inputs))}",
        is_quantized=header.is_quantized,
        has_sequence=any(shape[1:2] == (-1,) for shape in shapes),
        longest_because="the file names no limit of axis 1",
        inputs=header.inputs,
    )


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
