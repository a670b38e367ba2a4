"""Engines, networks and checkpoints that nobody needs, by locks and deployed stacks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX
from onboarding.text_generation.checkpoint_key import CHECKPOINTS

Kind = Literal["checkpoint", "engine", "network"]
PREFIXES: dict[Kind, str] = {
    "engine": f"{ENGINES_PREFIX}/",
    "network": f"{NETWORKS_PREFIX}/",
    "checkpoint": f"{CHECKPOINTS}/",
}
RECORD_SUFFIX = ".json"
"""Of a checkpoint's record, which lies beside its folder."""


class Verdict(StrEnum):
    """The verdict on an engine, network or checkpoint."""

    named = "named by a lock"
    taken_back = "named by a lock again: mark taken off"
    deployed = "deployed, though no lock of this tree names it"
    candidate = "built lately: its candidate is still there"
    young = "too young to be marked"
    marked = "marked"
    marked_before = "marked before"


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object; `is_marked` tells whether it carries the mark."""

    name: str
    size_bytes: int
    modified: datetime
    is_marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Every object of one engine, network or checkpoint."""

    kind: Kind
    key: str
    objects: tuple[StoredObject, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all objects together."""
        return sum(item.size_bytes for item in self.objects)

    @property
    def bears_a_mark(self) -> bool:
        """Whether any object is marked."""
        return any(item.is_marked for item in self.objects)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One of them with its verdict; `model` None: no record names it."""

    stored: Stored
    verdict: Verdict
    age_days: int
    gone_on: datetime | None = None
    model: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
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
    """Return the objects under a kind's prefix by key, their first folder; others are left out.

    A checkpoint's record has its key for a name.
    """
    groups: dict[str, list[StoredObject]] = {}
    for item in sorted(objects, key=lambda item: item.name):
        key, slash, _ = item.name.removeprefix(PREFIXES[kind]).partition("/")
        if kind == "checkpoint" and not slash and key.endswith(RECORD_SUFFIX):
            key, slash = key.removesuffix(RECORD_SUFFIX), "/"
        if slash:
            groups.setdefault(key, []).append(item)
    return tuple(Stored(kind=kind, key=key, objects=tuple(g)) for key, g in groups.items())


def decide(
    stored: Stored,
    named: Collection[str],
    deployed: Collection[str],
    *,
    candidates: Collection[str] = (),
    now: datetime,
    older_than_days: int,
    kept_days: int,
) -> Found:
    """Return the verdict on an engine, network or checkpoint.

    `named`: keys of locks, and of what this tree wants built; `deployed`: keys of stacks, of any
    branch; `candidates`: keys whose build is not older than candidates are kept. The lifecycle
    deletes `kept_days` after the mark, at the midnight (UTC) that follows.
    """
    # A mark writes an object anew.
    age_days = (now - max(item.modified for item in stored.objects)).days
    gone_on = None
    if stored.key in named or stored.key in deployed:
        verdict = Verdict.named if stored.key in named else Verdict.deployed
        verdict = Verdict.taken_back if stored.bears_a_mark else verdict
    elif all(item.is_marked for item in stored.objects):
        verdict = Verdict.marked_before
        marked_at = min(item.modified for item in stored.objects)
        gone_on = marked_at + timedelta(days=kept_days + 1)
    elif stored.key in candidates:
        verdict = Verdict.candidate
    elif stored.bears_a_mark or age_days >= older_than_days:
        # A mark makes an object young: one that was broken off is finished whatever its age.
        verdict, gone_on = Verdict.marked, now + timedelta(days=kept_days + 1)
    else:
        verdict = Verdict.young
    return Found(stored=stored, verdict=verdict, age_days=age_days, gone_on=gone_on)


def reportable(found: Iterable[Found]) -> tuple[Found, ...]:
    """Return all that is not simply named by a lock, by kind, the largest first."""
    shown = [item for item in found if item.verdict is not Verdict.named]
    return tuple(sorted(shown, key=lambda f: (f.stored.kind, -f.stored.size_bytes, f.stored.key)))
