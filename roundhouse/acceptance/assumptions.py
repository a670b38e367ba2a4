"""What a step assumes of AWS, NVIDIA's programs and our own code, and what it found instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How what was found compares with what was assumed."""

    same = "same"
    differs = "differs"
    not_reached = "not reached"
    not_applicable = "not applicable"


class Place(StrEnum):
    """Where an assumption says anything."""

    anywhere = "anywhere"
    aws = "AWS"
    """Not in the local cloud."""
    gpu = "a GPU"
    """Only where engines are TensorRT plans."""


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One thing that our code takes for granted; `name` begins with its step's and a dot."""

    name: str
    says: str
    expected: str
    place: Place = Place.anywhere

    @property
    def step(self) -> str:
        """Return the name of the step that shows it."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One row of the comparison; `found` of a thing that was not reached says why."""

    assumption: Assumption
    found: str
    verdict: Verdict

    def as_dict(self) -> dict[str, str]:
        """Return the row as plain JSON."""
        return {
            "assumption": self.assumption.name,
            "says": self.assumption.says,
            "expected": self.assumption.expected,
            "found": self.found,
            "verdict": self.verdict.value,
        }


@dataclass(kw_only=True)
class Findings:
    """The findings of one run, each assumption once; `on_change` is called after each."""

    assumptions: Mapping[str, Assumption]
    on_change: Callable[[], None] = lambda: None
    rows: dict[str, Finding] = field(default_factory=dict)

    def record(self, name: str, found: object, *, holds: bool | None = None) -> None:
        """Record what was found; without `holds` it must be the very text that is expected.

        A first difference of an assumption stays. Raises KeyError for a name nobody declared.
        """
        assumption = self.assumptions[name]
        before = self.rows.get(name)
        if before is not None and before.verdict is Verdict.differs:
            return
        is_same = str(found) == assumption.expected if holds is None else holds
        verdict = Verdict.same if is_same else Verdict.differs
        self.rows[name] = Finding(assumption=assumption, found=str(found), verdict=verdict)
        self.on_change()

    def table(self, reasons: Mapping[str, str], places: Collection[Place]) -> tuple[Finding, ...]:
        """Return a row for every assumption, in order.

        `reasons`: why a step was not reached, or not to its end, by step; `places`: those that
        this run's environment is.
        """
        return tuple(
            self.rows.get(name) or _without_finding(assumption, reasons, places)
            for name, assumption in self.assumptions.items()
        )


def _without_finding(
    assumption: Assumption, reasons: Mapping[str, str], places: Collection[Place]
) -> Finding:
    if assumption.place not in places:
        found = f"this environment is not {assumption.place.value}"
        return Finding(assumption=assumption, found=found, verdict=Verdict.not_applicable)
    reason = reasons.get(assumption.step, "the run ended before it")
    return Finding(assumption=assumption, found=reason, verdict=Verdict.not_reached)


def by_name(assumptions: Iterable[Assumption]) -> dict[str, Assumption]:
    """Return assumptions by name. Raises ValueError for a name that two have."""
    result: dict[str, Assumption] = {}
    for assumption in assumptions:
        if assumption.name in result:
            raise ValueError(f"two assumptions are called {assumption.name}")
        result[assumption.name] = assumption
    return result
