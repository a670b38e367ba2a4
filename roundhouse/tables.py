"""The tables that commands print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from onboarding.fault import Fault
from roundhouse.asking import Scores, Vector, cosine
from roundhouse.status.state import NOT_UP, State


def faults_table(faults: Sequence[Fault]) -> Table:
    """One row per fault: place, what is wrong, what is allowed, the way out."""
    table = Table(show_lines=True)
    table.add_column("File", no_wrap=True)
    for column in ("What", "Given", "Allowed", "Way out"):
        table.add_column(column, overflow="fold")
    for fault in faults:
        place = fault.file if fault.line is None else f"{fault.file}:{fault.line}"
        cells = (place, fault.what, fault.value, fault.allowed, fault.way_out)
        table.add_row(*(escape("" if cell is None else cell) for cell in cells))
    return table


def state_table(state: State) -> Table:
    """One row per model."""
    table = Table(title=f"Environment {state.environment}", title_justify="left")
    for column in ("Model", "Engine", "Lock", "Archive", "Endpoint"):
        table.add_column(column, overflow="fold")
    for each in state.engines:
        lock = each.lock if each.precision is None else f"{each.lock}: {each.precision}"
        endpoint = f"{each.endpoint} ({each.instance_type}): {each.endpoint_status}"
        table.add_row(each.model, each.engine_key, lock, each.archive, endpoint)
    return table


def unknown_lines(state: State) -> Iterator[str]:
    """Each reason why something is unknown, once; the line on the local cloud says its own."""
    found = {
        each.sentence.partition(": ")[2]: each.sentence
        for each in reversed(state.unknown)
        if each.reason != NOT_UP
    }
    yield from (f"Unknown, because: {sentence}" for sentence in reversed(found.values()))


def classes_table(texts: Sequence[str], classes: Sequence[Scores]) -> Table:
    """The likeliest class of every text, and the next ones."""
    table = Table()
    for column in ("Text", "Class", "Probability", "Then"):
        table.add_column(
            column, overflow="fold", justify="right" if column == "Probability" else "left"
        )
    for text, scores in zip(texts, classes, strict=True):
        (first, probability), others = scores[0], scores[1:4]
        then = ", ".join(f"{name} {share:.3f}" for name, share in others)
        table.add_row(escape(text), escape(first), f"{probability:.3f}", escape(then))
    return table


def likeness_table(texts: Sequence[str], vectors: Sequence[Vector]) -> Table:
    """The cosine of every text with every other."""
    table = Table()
    table.add_column("Cosine")
    for number in range(1, len(texts) + 1):
        table.add_column(str(number), justify="right")
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1):
        table.add_row(
            escape(f"{number} {text}"), *(f"{cosine(vector, other):.3f}" for other in vectors)
        )
    return table


def arrays_table(arrays: Mapping[str, Any]) -> Table:
    """Name, shape, type and first values of every array."""
    table = Table()
    for column in ("Output", "Shape", "Type", "First values"):
        table.add_column(column, overflow="fold")
    for name, array in arrays.items():
        head = ", ".join(
            f"{value:g}" if array.dtype.kind == "f" else str(value)
            for value in array.reshape(-1)[:6]
        )
        more = ", …" if array.size > 6 else ""
        table.add_row(
            escape(name),
            " × ".join(map(str, array.shape)),
            str(array.dtype),
            escape(f"{head}{more}"),
        )
    return table
