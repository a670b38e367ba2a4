"""Triton's model configurations, `config.pbtxt`, as pure functions of what is served.

On a CPU the archive holds one model, run by the ONNX Runtime backend. On a GPU a text task is an
ensemble of a tokenizer and the plan; tensors are the plan alone. No configuration has a `name`, so
that it loads under any target model's name; an ensemble's members keep their folders' names.
Sources: Triton's model_config.proto and its TensorRT backend (instance_state.cc).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine_build.packaging.configuration_rules import check_served
from engine_build.packaging.pbtxt import TRUE, Message, Word, entry, text
from engine_build.packaging.served import TEXT, Served, client_record, member
from onboarding.manifest import ProfileRecord, TensorRecord

CONFIGURATION = "config.pbtxt"


def configurations(served: Served, *, is_cpu: bool) -> dict[str, str]:
    """The text of each `<folder>/config.pbtxt` of the archive. Raises InputRefused."""
    check_served(served, is_cpu=is_cpu)
    model = served.model
    if is_cpu:
        messages = {model: onnxruntime_model(served)}
    elif served.is_text:
        parts = {
            member(model, "tokenizer"): tokenizer(served),
            member(model, "engine"): plan(served),
        }
        messages = {model: ensemble(served), **parts}
    else:
        messages = {model: plan(served)}
    return {f"{folder}/{CONFIGURATION}": text(message) for folder, message in messages.items()}


def onnxruntime_model(served: Served) -> Message:
    """ONNX Runtime through the python backend; it warms itself, by the manifest."""
    return [
        ("backend", "python"),
        ("max_batch_size", served.max_batch_size),
        *_tensors("input", served.client_inputs if served.is_text else served.inputs),
        *_tensors("output", served.client_outputs if served.is_text else served.outputs),
        _dynamic_batching(served),
        (
            "instance_group",
            [("kind", Word("KIND_CPU")), ("count", served.serving.instances_per_gpu)],
        ),
        *_response_cache(served),
    ]


def plan(served: Served) -> Message:
    """Configure a TensorRT plan.

    Among several profiles the server chooses by its own rule, which need not be the builder's.
    """
    profiles = tuple(str(index) for index in range(len(served.profiles)))
    group: Message = [("kind", Word("KIND_GPU")), ("count", served.serving.instances_per_gpu)]
    return [
        ("backend", "tensorrt"),
        ("default_model_filename", "model.plan"),
        ("max_batch_size", served.max_batch_size),
        *_tensors("input", served.inputs),
        *_tensors("output", served.outputs),
        _dynamic_batching(served),
        ("instance_group", group if len(profiles) == 1 else [*group, ("profile", profiles)]),
        *_cuda_graphs(served),
        *(_warm_ups(served) if served.serving.warm_up else ()),
        *_response_cache(served),
    ]


def tokenizer(served: Served) -> Message:
    """Texts to the network's inputs, by the python backend; waiting texts share a call."""
    return [
        ("backend", "python"),
        ("max_batch_size", served.max_batch_size),
        *_tensors("input", served.client_inputs),
        *_tensors("output", served.inputs),
        ("dynamic_batching", [("max_queue_delay_microseconds", 0)]),
        (
            "instance_group",
            [("kind", Word("KIND_CPU")), ("count", served.serving.instances_per_gpu)],
        ),
    ]


def ensemble(served: Served) -> Message:
    """Tokenizer, then plan.

    Triton caches no answer of an ensemble itself, so the plan's member has the response cache.
    """
    inside = [(record.name, record.name) for record in served.inputs]
    answer = [(served.outputs[0].name, served.client_outputs[0].name)]
    steps = [
        _step(member(served.model, "tokenizer"), [(TEXT.name, TEXT.name)], inside),
        _step(member(served.model, "engine"), inside, answer),
    ]
    return [
        ("platform", "ensemble"),
        ("max_batch_size", served.max_batch_size),
        *_tensors("input", served.client_inputs),
        *_tensors("output", served.client_outputs),
        ("ensemble_scheduling", [("step", step) for step in steps]),
    ]


def _step(
    model: str, inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]]
) -> Message:
    return [
        ("model_name", model),
        ("model_version", -1),
        *(("input_map", entry(*pair)) for pair in inputs),
        *(("output_map", entry(*pair)) for pair in outputs),
    ]


def _tensors(field: str, records: Sequence[TensorRecord]) -> Message:
    return [(field, _tensor(record)) for record in records]


def _tensor(record: TensorRecord) -> Message:
    reshape: Message = [("reshape", [("shape", ())])] if len(record.shape) == 1 else []
    return [
        ("name", record.name),
        ("data_type", Word(triton_type(record.datatype))),
        ("dims", client_record(record).shape[1:]),
        *reshape,
    ]


def triton_type(datatype: str) -> str:
    """Triton's name of a KServe v2 datatype."""
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _dynamic_batching(served: Served) -> tuple[str, Message]:
    batching = served.serving.dynamic_batching
    sizes = tuple(batching.preferred_batch_sizes)
    preferred: Message = [("preferred_batch_size", sizes)] if sizes else []
    return "dynamic_batching", [
        *preferred,
        ("max_queue_delay_microseconds", batching.max_queue_delay_us),
    ]


def _response_cache(served: Served) -> Message:
    return [("response_cache", [("enable", TRUE)])] if served.serving.response_cache else []


def _cuda_graphs(served: Served) -> Message:
    """Without a specification Triton would try shapes of its own, which a dynamic axis fails."""
    specs = _graph_specs(served)
    return [("optimization", [("cuda", [("graphs", TRUE), *specs])])] if specs else []


def _graph_specs(served: Served) -> Message:
    """One graph per profile's opt shape, and per preferred batch size at its opt sequence.

    No lower bound, so no stale data.
    """
    shapes = {
        (batch, _opt_sequence(profile))
        for profile in served.profiles
        for batch in (profile.batch[1], *served.serving.dynamic_batching.preferred_batch_sizes)
        if profile.batch[0] <= batch <= min(profile.batch[2], served.max_batch_size)
    }
    specs = [
        _graph_spec(served, *shape)
        for shape in sorted(shapes, key=lambda shape: (shape[0], shape[1] or 0))
    ]
    return [("graph_spec", spec) for spec in specs if spec is not None]


def _graph_spec(served: Served, batch: int, sequence: int | None) -> Message | None:
    dims = [_row_shape(record, sequence) for record in served.inputs]
    if any(-1 in shape for shape in dims):
        return None
    inputs = [
        ("input", entry(record.name, [("dim", shape)]))
        for record, shape in zip(served.inputs, dims, strict=True)
    ]
    return [("batch_size", batch), *inputs]


def _warm_ups(served: Served) -> Message:
    """A batch of zeros for every profile's smallest, likeliest and largest sizes."""
    samples: dict[tuple[int, int | None], Message] = {}
    for index, profile in enumerate(served.profiles):
        for place, name in enumerate(("min", "opt", "max")):
            batch = min(profile.batch[place], served.max_batch_size)
            sequence = None if profile.sequence is None else profile.sequence[place]
            samples.setdefault(
                (batch, sequence), _warm_up(served, f"profile {index} {name}", batch, sequence)
            )
    return [("model_warmup", sample) for sample in samples.values() if sample]


def _warm_up(served: Served, name: str, batch: int, sequence: int | None) -> Message:
    inputs: list[tuple[str, Message]] = []
    for record in served.inputs:
        shape = _row_shape(record, sequence)
        if -1 in shape:
            return []
        data: Message = [
            ("data_type", Word(triton_type(record.datatype))),
            ("dims", shape),
            ("zero_data", TRUE),
        ]
        inputs.append(("inputs", entry(record.name, data)))
    return [("name", name), ("batch_size", batch), *inputs]


def _opt_sequence(profile: ProfileRecord) -> int | None:
    return None if profile.sequence is None else profile.sequence[1]


def _row_shape(record: TensorRecord, sequence: int | None) -> tuple[int, ...]:
    """The axes of one row as the server counts them.

    A dynamic first one is the sequence, others have no known size.
    """
    shape = client_record(record).shape[1:]
    return (sequence, *shape[1:]) if sequence is not None and shape[0] == -1 else shape
