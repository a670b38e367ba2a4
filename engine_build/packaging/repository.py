"""The model repository of an engine: the files of its archive, and Triton's model configurations.

On a CPU the archive holds one model, run by the ONNX Runtime backend. On a GPU texts and images
have an ensemble of a tokenizer or a processor, the plan and, for labels and scores, a head; tensors
are the plan alone. A user's preprocessing and postprocessing make an ensemble of either. No
configuration, `config.pbtxt`, has a `name`, so that it loads under any target model's name; an
ensemble's members keep their folders' names.
Sources: Triton's model_config.proto and its TensorRT backend (instance_state.cc).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import DATA_NAME, data_file
from engine_build.packaging.archive import backend_file
from engine_build.packaging.served import (
    NETWORK_LOGITS,
    SPANS,
    Served,
    member,
    processing_file,
)
from onboarding.chain import client_record
from onboarding.manifest import TensorRecord
from onboarding.values import BASELINE_RUNTIMES, Runtime

CONFIGURATION = "config.pbtxt"


class EnsembleStep(NamedTuple):
    """A member of an ensemble; tensors by the member's name for them and the ensemble's."""

    part: str
    inputs: Sequence[tuple[str, str]]
    outputs: Sequence[tuple[str, str]]


def configurations(served: Served, *, is_cpu: bool) -> dict[str, str]:
    """The text of each `<folder>/config.pbtxt` of the archive. Raises InputRefused."""
    check_served(served, is_cpu=is_cpu)
    model = served.model
    part = None if is_cpu else served.encoder
    if is_cpu:
        # ONNX Runtime through the python backend; it warms itself, by the manifest.
        is_network = served.encoder is None
        inputs = served.inputs if is_network else served.model_inputs
        outputs = served.outputs if is_network else served.model_outputs
        engine = _python_model(served, inputs, outputs, _dynamic_batching(served))
    else:
        engine = plan(served)
    messages = {model: engine}
    if part is not None or served.is_processed:
        messages = {model: ensemble(served, is_cpu=is_cpu)}
        if part is not None:
            messages[member(model, part)] = encoder(served)
        messages[member(model, "engine")] = engine
    if part is not None and served.has_head:
        messages[member(model, "head")] = head(served)
    for name in ("preprocessing", "postprocessing"):
        if (record := getattr(served, name)) is not None:
            # Each request of a user's code is a call of its own.
            code = _python_model(served, record.inputs, record.outputs)
            messages[member(model, name)] = code
    if served.serving.response_cache:
        # Not the engine within an ensemble: Triton hands its answer on in the GPU's memory, and
        # caches none from there.
        messages[model] = [*messages[model], ("response_cache", [("enable", TRUE)])]
    return {f"{folder}/{CONFIGURATION}": text(message) for folder, message in messages.items()}


def check_served(served: Served, *, is_cpu: bool) -> None:
    """Refuse what only a checkpoint or a network tells of a model. Raises InputRefused.

    `roundhouse check` refuses the faults of its file.
    """
    prompts, answer = served.prompts, served.outputs[0]
    # Triton's cache knows a request by its inputs; a prompt's name is a parameter.
    if served.serving.response_cache and prompts is not None and prompts.differ:
        raise InputRefused(
            f"model configuration of {served.model}: the model has prompts "
            f"({', '.join(prompts.texts)}), and response_cache would answer a text from memory "
            "whatever prompt its request names; set `serving.response_cache` to false."
        )
    # On a GPU nothing stands behind the plan that could cast an answer.
    if served.encoder is not None and not is_cpu and answer.datatype != "FP32":
        raise InputRefused(
            f"model configuration of {served.model}: output {answer.name!r} has datatype "
            f"{answer.datatype}; task {served.task} answers in FP32: end the network with a cast."
        )


def plan(served: Served) -> Message:
    """Configure a TensorRT plan.

    Among several profiles the server chooses by its own rule, which need not be the builder's.
    """
    return [
        ("backend", "tensorrt"),
        ("default_model_filename", "model.plan"),
        ("max_batch_size", served.max_batch_size),
        *tensors("input", served.inputs),
        *tensors("output", served.outputs),
        _dynamic_batching(served),
        _instance_group(served, "KIND_GPU"),
        *_cuda_graphs(served),
        *(_warm_ups(served) if served.serving.warm_up else ()),
    ]


def encoder(served: Served) -> Message:
    """Texts or images to the network's inputs, by the python backend; what waits shares a call."""
    outputs = (*served.inputs, *_spans(served))
    batching: Field = ("dynamic_batching", [("max_queue_delay_microseconds", 0)])
    model = _python_model(served, served.model_inputs, outputs, batching)
    return [*model, *_encoder_warm_up(served)]


def head(served: Served) -> Message:
    """The plan's logits to labels and scores, by the python backend."""
    logits = served.outputs[0].model_copy(update={"name": NETWORK_LOGITS})
    return _python_model(served, (logits, *_spans(served)), served.model_outputs)


def _python_model(
    served: Served, inputs: Sequence[TensorRecord], outputs: Sequence[TensorRecord], *more: Field
) -> Message:
    """Configure code that the python backend runs."""
    return [
        ("backend", "python"),
        ("max_batch_size", served.max_batch_size),
        *tensors("input", inputs),
        *tensors("output", outputs),
        *more,
        _instance_group(served, "KIND_CPU"),
    ]


def ensemble(served: Served, *, is_cpu: bool = False) -> Message:
    """Preprocessing, encoder, engine, head, postprocessing: those that there are, in this order.

    Raises InputRefused.
    """
    steps = [*_steps(served, is_cpu=is_cpu)]
    names = [record.name for record in served.client_inputs]
    names += [name for step in steps for _, name in step.outputs]
    for name in names:
        if names.count(name) > 1:
            raise InputRefused(
                f"model configuration of {served.model}: {name!r} names two tensors of its "
                "ensemble; rename it in `serving.preprocessing` or `serving.postprocessing`."
            )
    members = [step._replace(part=member(served.model, step.part)) for step in steps]
    return ensemble_of_steps(
        served.max_batch_size, served.client_inputs, served.client_outputs, members
    )


def ensemble_of_steps(
    max_batch_size: int,
    inputs: Sequence[TensorRecord],
    outputs: Sequence[TensorRecord],
    steps: Iterable[EnsembleStep],
) -> Message:
    """Configure an ensemble; each step's `part` is the name of its whole model."""
    return [
        ("platform", "ensemble"),
        ("max_batch_size", max_batch_size),
        *tensors("input", inputs),
        *tensors("output", outputs),
        (
            "ensemble_scheduling",
            [
                (
                    "step",
                    [
                        ("model_name", step.part),
                        ("model_version", -1),
                        *(("input_map", entry(*pair)) for pair in step.inputs),
                        *(("output_map", entry(*pair)) for pair in step.outputs),
                    ],
                )
                for step in steps
            ],
        ),
    ]


def _steps(served: Served, *, is_cpu: bool) -> Iterator[EnsembleStep]:
    given = "preprocessed_{}" if served.preprocessing is not None else "{}"
    answer = "unprocessed_{}" if served.postprocessing is not None else "{}"
    taken = [(record.name, given.format(record.name)) for record in served.model_inputs]
    answered = [(record.name, answer.format(record.name)) for record in served.model_outputs]
    if served.preprocessing is not None:
        yield EnsembleStep("preprocessing", _same(served.client_inputs), taken)
    if is_cpu or served.encoder is None:
        yield EnsembleStep("engine", taken, answered)
    else:
        tokens, spans = _same(served.inputs), _same(_spans(served))
        yield EnsembleStep(served.encoder, taken, [*tokens, *spans])
        result = NETWORK_LOGITS if served.has_head else answered[0][1]
        yield EnsembleStep("engine", tokens, [(served.outputs[0].name, result)])
        if served.has_head:
            yield EnsembleStep("head", [(NETWORK_LOGITS, NETWORK_LOGITS), *spans], answered)
    if served.postprocessing is not None:
        yield EnsembleStep("postprocessing", answered, _same(served.client_outputs))


def _same(records: Sequence[TensorRecord]) -> list[tuple[str, str]]:
    return [(record.name, record.name) for record in records]


def _spans(served: Served) -> tuple[TensorRecord, ...]:
    is_of_tokens = served.has_head and served.task == "token-classification"
    return (SPANS,) if is_of_tokens else ()


def tensors(field: str, records: Sequence[TensorRecord]) -> Message:
    """The inputs or outputs of a model, without their batch's axis."""
    return [
        (
            field,
            [
                ("name", record.name),
                ("data_type", _type(record)),
                ("dims", client_record(record).shape[1:]),
                *([("reshape", [("shape", ())])] if len(record.shape) == 1 else []),
            ],
        )
        for record in records
    ]


def _type(record: TensorRecord) -> Word:
    return Word("TYPE_STRING" if record.datatype == "BYTES" else f"TYPE_{record.datatype}")


def _dynamic_batching(served: Served) -> Field:
    batching = served.serving.dynamic_batching
    sizes = tuple(batching.preferred_batch_sizes)
    preferred: Message = [("preferred_batch_size", sizes)] if sizes else []
    delay = ("max_queue_delay_microseconds", batching.max_queue_delay_us)
    return "dynamic_batching", [*preferred, delay]


def _instance_group(served: Served, kind: str) -> Field:
    profiles = tuple(map(str, range(len(served.profiles))))
    has_choice = kind == "KIND_GPU" and len(profiles) > 1
    profile: Message = [("profile", profiles)] if has_choice else []
    count: Field = ("count", served.serving.instances_per_gpu)
    return "instance_group", [("kind", Word(kind)), count, *profile]


def _cuda_graphs(served: Served) -> Message:
    """One graph per profile's opt shape, and per preferred batch size at its opt sequence.

    Without a specification Triton would try shapes of its own, which a dynamic axis fails. No lower
    bound, so no stale data.
    """
    shapes = {
        (batch, None if profile.sequence is None else profile.sequence[1])
        for profile in served.profiles
        for batch in (profile.batch[1], *served.serving.dynamic_batching.preferred_batch_sizes)
        if profile.batch[0] <= batch <= min(profile.batch[2], served.max_batch_size)
    }
    specs: list[Field] = []
    for batch, sequence in sorted(shapes, key=lambda shape: (shape[0], shape[1] or 0)):
        if rows := _row_shapes(served, sequence):
            inputs = [
                ("input", entry(record.name, [("dim", row)]))
                for record, row in zip(served.inputs, rows, strict=True)
            ]
            specs.append(("graph_spec", [("batch_size", batch), *inputs]))
    return [("optimization", [("cuda", [("graphs", TRUE), *specs])])] if specs else []


def _warm_ups(served: Served) -> Message:
    """A batch of zeros for every profile's smallest, likeliest and largest sizes."""
    names: dict[tuple[int, int | None], str] = {}
    for index, profile in enumerate(served.profiles):
        for size, name in enumerate(("min", "opt", "max")):
            batch = min(profile.batch[size], served.max_batch_size)
            sequence = None if profile.sequence is None else profile.sequence[size]
            names.setdefault((batch, sequence), f"profile {index} {name}")
    warm_ups: list[Field] = []
    for (batch, sequence), name in names.items():
        if rows := _row_shapes(served, sequence):
            inputs = [
                ("inputs", entry(record.name, _zeros(record, row)))
                for record, row in zip(served.inputs, rows, strict=True)
            ]
            warm_ups.append(("model_warmup", [("name", name), ("batch_size", batch), *inputs]))
    return warm_ups


def _encoder_warm_up(served: Served) -> Message:
    """One empty text for each instance, whose process is slow at its first."""
    if not served.serving.warm_up or served.encoder != "tokenizer":
        return []
    inputs = [
        ("inputs", entry(record.name, _zeros(record, (1,)))) for record in served.model_inputs
    ]
    return [("model_warmup", [("name", "an empty text"), ("batch_size", 1), *inputs])]


def _zeros(record: TensorRecord, row: tuple[int, ...]) -> Message:
    return [("data_type", _type(record)), ("dims", row), ("zero_data", TRUE)]


def _row_shapes(served: Served, sequence: int | None) -> list[tuple[int, ...]] | None:
    """The axes of one row of each input as the server counts them; None for an unknown size.

    A dynamic first axis is the sequence, others have no known size.
    """
    rows = []
    for record in served.inputs:
        row = client_record(record).shape[1:]
        rows.append((sequence, *row[1:]) if sequence is not None and row[0] == -1 else row)
    return None if any(-1 in row for row in rows) else rows


class Word(str):
    """An enum value or a boolean: written without quotes."""

    __slots__ = ()


Scalar = str | int
Field = tuple[str, "Scalar | Sequence[int] | Sequence[str] | Message"]
Message = Sequence[Field]
"""Fields in order; a repeated message is its field repeated, a tuple a repeated scalar."""
TRUE = Word("true")


def text(message: Message, indent: str = "") -> str:
    """The message, one field a line, nested by two spaces."""
    lines = []
    for name, value in message:
        if isinstance(value, str | int):
            lines.append(f"{indent}{name}: {_scalar(value)}\n")
        elif isinstance(value, tuple):
            inside = ", ".join(_scalar(item) for item in value if isinstance(item, str | int))
            lines.append(f"{indent}{name}: [ {inside} ]\n" if value else f"{indent}{name}: [ ]\n")
        else:
            fields = text(value, f"{indent}  ")  # type: ignore[arg-type]
            lines.append(f"{indent}{name} {{\n{fields}{indent}}}\n")
    return "".join(lines)


def entry(key: str, value: Scalar | Message) -> Message:
    """One entry of a map field."""
    return [("key", key), ("value", value)]


def _scalar(value: Scalar) -> str:
    if isinstance(value, Word) or not isinstance(value, str):
        return str(value)
    return f'"{"".join(map(_escape, value))}"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())


ENSEMBLE = "An ensemble has no file of its own, and Triton wants its version folder.\n"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Files by archive path, a text as it stands; and the two that a server looks for."""

    files: dict[str, Path | str]
    engine_file: str
    tokenizer_file: str | None


def repository(
    served: Served,
    engine: Path,
    tokenizer: Path | None,
    *,
    runtime: Runtime,
    code_roots: tuple[Path, ...],
) -> Repository:
    """One model folder; those of an ensemble for an encoder on a GPU, and around a user's code.

    A baseline has no model configuration. A network's data file lies beside it; a user's files are
    of the first root. Raises InputRefused.
    """
    model, is_cpu = served.model, runtime == "onnxruntime"
    if runtime in BASELINE_RUNTIMES:
        # Triton has no model of it, and loads none.
        check_served(served, is_cpu=True)
        return _with_engine({}, engine, tokenizer, f"{model}/1/model{engine.suffix}", f"{model}/1")
    files: dict[str, Path | str] = {**configurations(served, is_cpu=is_cpu)}
    plan_folder = code_folder = f"{model}/1"
    part = None if is_cpu else served.encoder
    if served.is_processed or part is not None:
        plan_folder = f"{member(model, 'engine')}/1"
        code_folder = plan_folder if part is None else f"{member(model, part)}/1"
        files[f"{model}/1/ensemble.txt"] = ENSEMBLE
    for folder, (backend, *imported) in _python_models(served, code_folder, is_cpu=is_cpu).items():
        files[f"{folder}/model.py"] = backend_file(code_roots, backend)
        files |= {f"{folder}/{name}": backend_file(code_roots, name) for name in imported}
    for name in ("preprocessing", "postprocessing"):
        if (spec := getattr(served.serving, name)) is not None:
            files[processing_file(model, name)] = code_roots[0] / spec.file
    engine_file = f"{plan_folder}/{'model.onnx' if is_cpu else 'model.plan'}"
    return _with_engine(files, engine, tokenizer, engine_file, code_folder)


def _with_engine(
    files: dict[str, Path | str],
    engine: Path,
    tokenizer: Path | None,
    engine_file: str,
    code_folder: str,
) -> Repository:
    """Return the files with the engine, what lies beside it, and its tokenizer."""
    files[engine_file] = engine
    if (data := data_file(engine)) is not None:
        files[f"{engine_file.rpartition('/')[0]}/{DATA_NAME}"] = data
    tokenizer_file = None
    if tokenizer is not None:
        tokenizer_file = f"{code_folder}/tokenizer.json"
        files[tokenizer_file] = tokenizer
    return Repository(files=files, engine_file=engine_file, tokenizer_file=tokenizer_file)


def _python_models(served: Served, code_folder: str, *, is_cpu: bool) -> dict[str, tuple[str, ...]]:
    """Return the files of each model of the python backend: its own, then what it imports."""
    imported: tuple[str, ...] = ("manifest_check.py", "heads.py")
    backend, reading = "tokenizer.py", imported
    if served.encoder == "processor":
        backend, reading = "image_backend.py", (*imported, "images.py", "image_requests.py")
    models: dict[str, tuple[str, ...]] = {}
    if is_cpu:
        models[code_folder] = ("onnxruntime_backend.py", *reading)
    elif served.encoder is not None:
        models[code_folder] = (backend, *reading)
    if served.has_head and not is_cpu:
        models[f"{member(served.model, 'head')}/1"] = ("head_backend.py", *imported)
    code = ("processing_backend.py", "manifest_check.py", "processing.py", "answer_check.py")
    for part in ("preprocessing", "postprocessing"):
        if getattr(served.serving, part) is not None:
            models[f"{member(served.model, part)}/1"] = code
    return models
