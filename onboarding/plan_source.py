"""The engine whose plan another engine is made of, so that nothing is compiled twice.

Engines of one plan key differ in packaging alone, and a plan lies in every archive that was made of
it. Which archives those are, locks tell.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from onboarding.deployment import Target
from onboarding.lock import LOCK_SUFFIX, LockEntry, LockError, read_lock
from onboarding.manifest import Manifest

NO_PLAN = "none"
"""What a build is given in the place of a source where it compiles the plan."""
PLAN_SOURCE = re.compile(r"([0-9a-f]{20})(?::([0-9a-f]{64}))?")
"""What `--plan-from` takes: an engine key, and the sha256 of its archive."""
NOT_REUSED = "is not reused"
"""In the reason of a build that refuses a plan, which may be compiled instead."""


@dataclass(frozen=True, kw_only=True)
class PlanSource:
    """A published engine, or one that an earlier wave of the same execution publishes."""

    engine_key: str
    sha256: str | None = None
    """Of its archive, as a lock names it; None for an engine that the same execution builds."""
    entry: LockEntry | None = None
    """Of that lock."""

    def __str__(self) -> str:
        """Return what `--plan-from` takes."""
        return self.engine_key if self.sha256 is None else f"{self.engine_key}:{self.sha256}"


def locked_plans(locks: Path, wanted: Collection[str]) -> dict[str, tuple[LockEntry, ...]]:
    """Return the engines in a folder's locks whose plans are `wanted`, by the plan's key.

    Whatever model they are of; those that compiled their plan, and were timed, come first. The
    manifest must name the plan too: a lock's own key is signed by nobody. A lock that cannot be
    read has no engines: of a deployed model it is refused elsewhere.
    """
    found: dict[str, list[LockEntry]] = {}
    for entry in _entries(locks, wanted):
        plan = entry.plan_key
        words = f"{entry.manifest.engine_key}:{entry.archive.sha256}"
        # They become words of a command, and a lock of a pull request may hold any text.
        if plan is None or plan not in wanted or not PLAN_SOURCE.fullmatch(words):
            continue
        if is_of_plan(entry.manifest, plan):
            found.setdefault(plan, []).append(entry)
    return {plan: tuple(sorted(entries, key=_preference)) for plan, entries in found.items()}


def plan_sources(
    targets: Iterable[Target], locked: Mapping[str, Collection[LockEntry]]
) -> dict[str, PlanSource]:
    """Return where the plans of engines to build come from, by engine key.

    An engine of the same model is preferred. Those to compile are absent: of several with one plan
    that no lock has, the first.
    """
    sources: dict[str, PlanSource] = {}
    compiled: dict[str, str] = {}
    wanted = {target.engine_key: target for target in targets if target.plan_key is not None}
    for engine_key, target in sorted(wanted.items()):
        plan = str(target.plan_key)
        others = [e for e in locked.get(plan, ()) if e.manifest.engine_key != engine_key]
        others.sort(key=lambda entry: entry.manifest.model != target.model.name)
        if others:
            key, sha256 = others[0].manifest.engine_key, others[0].archive.sha256
            sources[engine_key] = PlanSource(engine_key=key, sha256=sha256, entry=others[0])
        elif plan in compiled:
            sources[engine_key] = PlanSource(engine_key=compiled[plan])
        else:
            compiled[plan] = engine_key
    return sources


def _entries(locks: Path, plans: Collection[str]) -> Iterator[LockEntry]:
    """Yield the engines of every lock whose text mentions one of these plans."""
    for path in sorted(locks.glob(f"*{LOCK_SUFFIX}")):
        try:
            text = path.read_text(encoding="utf-8")
            if any(plan in text for plan in plans):
                yield from read_lock(locks, path.name.removesuffix(LOCK_SUFFIX)).engines.values()
        except (LockError, OSError, ValueError):
            continue


def _preference(entry: LockEntry) -> tuple[bool, bool, str]:
    was_timed = entry.manifest.builder.seconds is not None
    return entry.repackaged is not None, not was_timed, entry.manifest.engine_key


PLAN_KEY_NAME = "plan.json"


def plan_key_path(engine_file: str) -> str:
    """Return the archive path of the file, beside the engine file."""
    return str(PurePosixPath(engine_file).with_name(PLAN_KEY_NAME))


def plan_key_text(plan_key: str) -> str:
    """Return the content of the file: JSON."""
    return json.dumps({"plan_key": plan_key}) + "\n"


def is_of_plan(manifest: Manifest, plan_key: str) -> bool:
    """Return whether the plan in a manifest's archive has a key; False for archives of before."""
    digest = hashlib.sha256(plan_key_text(plan_key).encode()).hexdigest()
    return manifest.files.get(plan_key_path(manifest.engine_file)) == digest
