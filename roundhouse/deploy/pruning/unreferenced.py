"""Engines and networks that nobody needs, decided from locks and deployed stacks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any, Literal

from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX

Kind = Literal["engine", "network"]
PREFIXES: dict[Kind, str] = {"engine": f"{ENGINES_PREFIX}/", "network": f"{NETWORKS_PREFIX}/"}


class Verdict(StrEnum):
    """What becomes of an engine or network."""

    named = "named by a lock"
    taken_back = "named by a lock again: mark taken off"
    deployed = "deployed, though no lock of this tree names it"
    young = "too young to be marked"
    marked = "marked"
    marked_before = "marked before"


SHOWN = frozenset(Verdict) - {Verdict.named}
"""All but what is as it should be."""


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object; `is_marked` tells whether it carries the mark."""

    name: str
    size_bytes: int
    modified: datetime
    is_marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Every object of one engine or network."""

    kind: Kind
    key: str
    objects: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        """All objects together."""
        return sum(item.size_bytes for item in self.objects)

    @property
    def newest(self) -> datetime:
        """When the last object was written; a mark writes it anew."""
        return max(item.modified for item in self.objects)

    @property
    def is_marked(self) -> bool:
        """Return whether every object is; a mark that was broken off is finished by the next."""
        return all(item.is_marked for item in self.objects)

    @property
    def bears_a_mark(self) -> bool:
        """Return whether any object does."""
        return any(item.is_marked for item in self.objects)


@dataclass(frozen=True, kw_only=True)
class Named:
    """Keys that must stay.

    `by_locks` and by what this tree wants built, and `deployed` by a stack, whatever branch it
    is of.
    """

    by_locks: frozenset[str]
    deployed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Found:
    """One engine or network, and what becomes of it; `model` None: no record tells."""

    stored: Stored
    verdict: Verdict
    age_days: int
    gone_on: datetime | None = None
    model: str | None = None

    def with_model(self, model: str | None) -> Found:
        """The same, with the model's name."""
        return replace(self, model=model)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "kind": self.stored.kind,
            "key": self.stored.key,
            "model": self.model,
            "size_bytes": self.stored.size_bytes,
            "age_days": self.age_days,
            "verdict": self.verdict.name,
            "gone_on": None if self.gone_on is None else self.gone_on.date().isoformat(),
        }


def group_objects(kind: Kind, objects: Iterable[StoredObject]) -> tuple[Stored, ...]:
    """The objects under a kind's prefix, by key: its first folder.

    What lies in no folder is nobody's and is left alone.
    """
    prefix = PREFIXES[kind]
    inside = sorted(
        (item for item in objects if "/" in item.name.removeprefix(prefix)),
        key=lambda entry: entry.name,
    )
    groups = groupby(inside, key=lambda element: element.name.removeprefix(prefix).split("/")[0])
    return tuple(Stored(kind=kind, key=key, objects=tuple(group)) for key, group in groups)


def decide(
    each: Stored, named: Named, *, now: datetime, older_than_days: int, kept_days: int
) -> Found:
    """What becomes of an engine or network.

    The lifecycle deletes `kept_days` after the mark, at the midnight (UTC) that follows.
    """
    age = (now - each.newest).days
    verdict = _verdict(each, named, age, older_than_days)
    if verdict not in (Verdict.marked, Verdict.marked_before):
        return Found(stored=each, verdict=verdict, age_days=age)
    marked_at = now if verdict is Verdict.marked else min(part.modified for part in each.objects)
    return Found(
        stored=each,
        verdict=verdict,
        age_days=age,
        gone_on=marked_at + timedelta(days=kept_days + 1),
    )


def _verdict(each: Stored, named: Named, age_days: int, older_than_days: int) -> Verdict:
    if each.key in named.by_locks | named.deployed:
        if each.bears_a_mark:
            return Verdict.taken_back
        return Verdict.named if each.key in named.by_locks else Verdict.deployed
    if each.is_marked:
        return Verdict.marked_before
    # A mark makes an object young: one that was broken off is finished whatever its age.
    return Verdict.marked if each.bears_a_mark or age_days >= older_than_days else Verdict.young


def reportable(found: Iterable[Found]) -> tuple[Found, ...]:
    """What is worth a line: engines first, the largest first."""
    order: Collection[Kind] = tuple(PREFIXES)
    worth = [item for item in found if item.verdict in SHOWN]
    return tuple(
        sorted(
            worth,
            key=lambda entry: (
                list(order).index(entry.stored.kind),
                -entry.stored.size_bytes,
                entry.stored.key,
            ),
        )
    )
