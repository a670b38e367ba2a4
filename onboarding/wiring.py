"""The tensors between the steps of an ensemble: who makes them, who takes them, and what is wrong.

Pure: `check` reads it with what model files say of their tensors, the build with manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onboarding.ensemble_spec import StepSpec
from onboarding.manifest import TensorRecord

Place = tuple[str | int, ...]
"""Where in the model file a problem lies."""


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a model takes and answers; of a shape nothing but a known size counts."""

    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]


@dataclass(frozen=True, kw_only=True)
class WiredStep:
    """A step with its tensors: the model's name for each and the ensemble's."""

    model: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    """Those that another step takes, or a client gets."""


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Steps in an order in which each finds its inputs; what clients send and get."""

    steps: tuple[WiredStep, ...]
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


@dataclass(frozen=True)
class _End:
    """One end of a tensor: a step's input or output."""

    step: int
    place: Place
    record: TensorRecord


_Ends = Mapping[str, Sequence[_End]]
"""By the ensemble's name of the tensor, in the order of the steps."""


def wiring(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> Wiring:
    """Return the wiring of steps without problems."""
    taken, made = _ends(steps, outputs, interfaces)
    order = _order(steps, taken, made)
    wired = []
    for index in order:
        step, known = steps[index], interfaces[steps[index].model]
        names = [(item.name, step.outputs.get(item.name, item.name)) for item in known.outputs]
        wired.append(
            WiredStep(
                model=step.model,
                inputs=tuple(
                    (item.name, step.inputs.get(item.name, item.name)) for item in known.inputs
                ),
                outputs=tuple(pair for pair in names if pair[1] in made),
            )
        )
    sent = {tensor: ends[0].record for tensor, ends in taken.items() if tensor not in made}
    return Wiring(
        steps=tuple(wired),
        inputs=tuple(_renamed_record(record, tensor) for tensor, record in sent.items()),
        outputs=tuple(_renamed_record(made[tensor][0].record, tensor) for tensor in outputs),
    )


def wiring_problems(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> Iterator[Problem]:
    """Yield what is wrong with the tensors between steps.

    A step without an interface is not known, and neither are the tensors that only it would make.
    """
    for index, step in enumerate(steps):
        yield from _unknown_names(index, step, interfaces.get(step.model))
    taken, made = _ends(steps, outputs, interfaces)
    for tensor, makers in made.items():
        if len(makers) > 1:
            first = steps[makers[0].step].model
            yield Problem(
                place=makers[1].place,
                what=f"two steps answer the tensor {tensor!r}: {first} and "
                f"{steps[makers[1].step].model}",
                way_out=f"rename one of them, such as `outputs: {{{makers[1].record.name}: "
                f"{steps[makers[1].step].model}_{tensor}}}`",
            )
    yield from _output_problems(steps, outputs, interfaces, taken, made)
    yield from _misfits(steps, taken, made)
    if len(_order(steps, taken, made)) < len(steps):
        left = [index for index in range(len(steps)) if index not in _order(steps, taken, made)]
        yield Problem(
            place=("steps", left[0]),
            what="steps wait for each other's tensors in a circle: "
            + ", ".join(steps[index].model for index in left),
            way_out="let the first of them take what clients send",
        )


def _output_problems(
    steps: Sequence[StepSpec],
    outputs: Sequence[str],
    interfaces: Mapping[str, Interface],
    taken: _Ends,
    made: _Ends,
) -> Iterator[Problem]:
    is_whole = all(step.model in interfaces for step in steps)
    for index, tensor in enumerate(outputs):
        if tensor not in made and is_whole:
            yield Problem(
                place=("outputs", index),
                what=f"'outputs[{index}]' is a tensor that no step answers",
                value=tensor,
                allowed=", ".join(_answers(steps, interfaces)) or "none",
                way_out="name a step's output",
            )
        if tensor in taken and tensor in made:
            taker = steps[taken[tensor][0].step].model
            yield Problem(
                place=("outputs", index),
                what=f"'outputs[{index}]' goes to clients and to {taker}, and Triton fails each "
                "request that asks for other outputs alone",
                value=tensor,
                way_out="leave it out, or call the models from code of your own, with `bls`",
            )


def _misfits(steps: Sequence[StepSpec], taken: _Ends, made: _Ends) -> Iterator[Problem]:
    """Yield each input whose datatype or sizes are not those of what it gets."""
    for tensor, ends in taken.items():
        source = made[tensor][0] if tensor in made else ends[0]
        for end in ends:
            reason = _difference(source.record, end.record)
            if reason is not None:
                maker = steps[source.step].model
                giver = f"{maker} answers" if tensor in made else f"{maker} takes"
                yield Problem(
                    place=end.place,
                    what=f"tensor {tensor!r} does not fit {steps[end.step].model}: {giver} "
                    f"{_description(source.record)}, and its input {end.record.name} is "
                    f"{_description(end.record)}",
                    allowed=f"the same {reason}",
                    way_out="map another tensor, or change one of the two models",
                )


def _unknown_names(index: int, step: StepSpec, known: Interface | None) -> Iterator[Problem]:
    if known is None:
        return
    for key, given, records in (
        ("inputs", step.inputs, known.inputs),
        ("outputs", step.outputs, known.outputs),
    ):
        names = [record.name for record in records]
        for name in given:
            if name not in names:
                yield Problem(
                    place=("steps", index, key, name),
                    what=f"'steps[{index}].{key}' names a tensor that {step.model} has not",
                    value=name,
                    allowed=", ".join(names),
                    way_out="write the model's own name left, the ensemble's right",
                )


def _ends(
    steps: Sequence[StepSpec], outputs: Sequence[str], interfaces: Mapping[str, Interface]
) -> tuple[dict[str, list[_End]], dict[str, list[_End]]]:
    """Return who takes each tensor, and who makes each that is taken or got, by the order."""
    taken: dict[str, list[_End]] = {}
    made: dict[str, list[_End]] = {}
    known = [
        (i, step, interfaces[step.model])
        for i, step in enumerate(steps)
        if step.model in interfaces
    ]
    for index, step, interface in known:
        for record in interface.inputs:
            tensor = step.inputs.get(record.name, record.name)
            place = _place(index, "inputs", record.name, step.inputs)
            taken.setdefault(tensor, []).append(_End(index, place, record))
    for index, step, interface in known:
        for record in interface.outputs:
            tensor = step.outputs.get(record.name, record.name)
            if tensor in outputs or tensor in taken:
                place = _place(index, "outputs", record.name, step.outputs)
                made.setdefault(tensor, []).append(_End(index, place, record))
    return taken, made


def _place(index: int, key: str, name: str, given: Mapping[str, str]) -> Place:
    return ("steps", index, key, name) if name in given else ("steps", index)


def _order(steps: Sequence[StepSpec], taken: _Ends, made: _Ends) -> list[int]:
    """Return the steps in an order in which each has its inputs; none of a circle."""
    needs: dict[int, set[int]] = {index: set() for index in range(len(steps))}
    for tensor, ends in taken.items():
        for end in ends:
            needs[end.step].update(maker.step for maker in made.get(tensor, ()))
    order: list[int] = []
    while ready := [i for i in needs if i not in order and needs[i] <= set(order)]:
        order.append(ready[0])
    return order


def _answers(steps: Sequence[StepSpec], interfaces: Mapping[str, Interface]) -> Iterator[str]:
    for step in steps:
        for record in interfaces[step.model].outputs:
            yield step.outputs.get(record.name, record.name)


def _difference(made: TensorRecord, taken: TensorRecord) -> str | None:
    if made.datatype != taken.datatype:
        return "datatype"
    first, second = _row(made), _row(taken)
    if len(first) != len(second):
        return "number of axes"
    pairs = zip(first, second, strict=True)
    return None if all(one == two or -1 in (one, two) for one, two in pairs) else "sizes"


def _row(record: TensorRecord) -> tuple[int, ...]:
    # One value a row is an axis of 1 to Triton.
    return record.shape[1:] or (1,)


def _description(record: TensorRecord) -> str:
    return f"{record.datatype} {list(record.shape)}"


def _renamed_record(record: TensorRecord, tensor: str) -> TensorRecord:
    shape = record.shape if len(record.shape) > 1 else (-1, 1)
    return record.model_copy(update={"name": tensor, "shape": shape})
