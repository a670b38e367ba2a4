"""The tensors of an ensemble, whose models answer one after the other, and what is wrong with them.

Each model takes what the one before answers: tensors of the same names, or else as many, in order.
Pure: `check` reads it with what model files say of their tensors, the build with manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from onboarding.manifest import TensorRecord
from onboarding.model_spec import StepSpec

Place = tuple[str | int, ...]
"""Where in the model file a problem lies."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a model takes and answers; of a shape nothing but a known size counts."""

    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]


@dataclass(frozen=True, kw_only=True)
class ChainStep:
    """A step with its tensors: the model's name for each and the ensemble's."""

    model: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    """Those that the next step takes, or a client gets."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The steps in their order; what clients send and get."""

    steps: tuple[ChainStep, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong at a place of the model file."""

    place: Place
    what: str
    value: object = None
    allowed: str | None = None
    way_out: str


def chain(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> Chain:
    """Return the chain of steps without problems."""
    known = [interfaces[step.model] for step in steps]
    answered = {record.name: record for record in known[-1].outputs}
    taken = [(record.name, record.name) for record in known[0].inputs]
    used = {*outputs, *(name for name, _ in taken)}
    wired: list[ChainStep] = []
    for index, step in enumerate(steps):
        if index + 1 == len(steps):
            made = [(name, name) for name in answered if name in outputs]
            passed: list[tuple[str, str]] = []
        else:
            pairs = _pairs(known[index].outputs, known[index + 1].inputs)
            tensors = {one.name: _unused_name(one.name, used) for one, _ in pairs or ()}
            made = [
                (one.name, tensors[one.name]) for one in known[index].outputs if one.name in tensors
            ]
            passed = [(two.name, tensors[one.name]) for one, two in pairs or ()]
        wired.append(ChainStep(model=step.model, inputs=tuple(taken), outputs=tuple(made)))
        taken = passed
    return Chain(
        steps=tuple(wired),
        inputs=tuple(map(client_record, known[0].inputs)),
        outputs=tuple(client_record(answered[name]) for name in outputs),
    )


def chain_problems(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> Iterator[Problem]:
    """Yield what is wrong with the tensors between steps.

    A step without an interface is not known yet, and neither is what it answers.
    """
    for index, (step, following) in enumerate(pairwise(steps), start=1):
        if step.model in interfaces and following.model in interfaces:
            yield from _misfits(index, step.model, following.model, interfaces)
    if steps and steps[-1].model in interfaces:
        yield from _output_problems(steps, outputs, interfaces)


def _misfits(
    index: int, model: str, following: str, interfaces: Mapping[str, Interface]
) -> Iterator[Problem]:
    """Yield why a step cannot take what the one before answers."""
    made, taken = interfaces[model].outputs, interfaces[following].inputs
    pairs = _pairs(made, taken)
    if pairs is None:
        yield Problem(
            place=("steps", index),
            what=f"{following} takes {_names(taken)}, and {model} answers {_names(made)}",
            allowed="outputs of the inputs' names, or as many of other names, which are taken in "
            "order",
            way_out="change one of the two models, such as by `serving.postprocessing`",
        )
    for one, two in pairs or ():
        reason = _difference(one, two)
        if reason is not None:
            yield Problem(
                place=("steps", index),
                what=f"tensor {one.name!r} does not fit {following}: {model} answers "
                f"{_description(one)}, and its input {two.name} is {_description(two)}",
                allowed=f"the same {reason}",
                way_out="change one of the two models",
            )


def _output_problems(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> Iterator[Problem]:
    last = steps[-1].model
    answered = [record.name for record in interfaces[last].outputs]
    first = interfaces.get(steps[0].model)
    sent = [] if first is None else [record.name for record in first.inputs]
    for index, name in enumerate(outputs):
        place, key = ("outputs", index), f"'outputs[{index}]'"
        if name not in answered:
            yield Problem(
                place=place,
                what=f"{key} is a tensor that {last}, the last model, does not answer",
                value=name,
                allowed=", ".join(answered) or "none",
                way_out="name an output of the last model",
            )
        elif name in sent:
            yield Problem(
                place=place,
                what=f"{key} is also the name of a tensor that clients send to {steps[0].model}, "
                "and Triton knows a tensor by its name",
                value=name,
                way_out="rename it in one of the two models",
            )


def _pairs(
    made: Sequence[TensorRecord], taken: Sequence[TensorRecord]
) -> list[tuple[TensorRecord, TensorRecord]] | None:
    """Return the output that each input takes; None where neither names nor numbers tell."""
    by_name = {record.name: record for record in made}
    if all(record.name in by_name for record in taken):
        return [(by_name[record.name], record) for record in taken]
    if any(record.name in by_name for record in taken) or len(made) != len(taken):
        return None
    return list(zip(made, taken, strict=True))


def _unused_name(name: str, used: set[str]) -> str:
    """Return a name of the ensemble for a tensor between two steps, and keep it in `used`."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    unused = next(candidate for candidate in names if candidate not in used)
    used.add(unused)
    return unused


def _difference(made: TensorRecord, taken: TensorRecord) -> str | None:
    if made.datatype != taken.datatype:
        return "datatype"
    first, second = _row_sizes(made), _row_sizes(taken)
    if len(first) != len(second):
        return "number of axes"
    pairs = zip(first, second, strict=True)
    return None if all(one == two or -1 in (one, two) for one, two in pairs) else "sizes"


def _row_sizes(record: TensorRecord) -> tuple[int, ...]:
    # One value a row is an axis of 1 to Triton.
    return record.shape[1:] or (1,)


def client_record(record: TensorRecord) -> TensorRecord:
    """Triton knows no tensor of the batch axis alone, so one value a row is a second axis of 1."""
    return record if len(record.shape) > 1 else record.model_copy(update={"shape": (-1, 1)})


def _names(records: Sequence[TensorRecord]) -> str:
    return ", ".join(record.name for record in records) or "nothing"


def _description(record: TensorRecord) -> str:
    return f"{record.datatype} {list(record.shape)}"
