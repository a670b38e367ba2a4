"""`roundhouse prune`: tags what no lock names, for the bucket's lifecycle to delete in time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, Literal
from urllib.parse import urlencode

from onboarding.fault import Fault, FaultsError
from onboarding.keys import KEY_LENGTH
from onboarding.lock import LOCK_SUFFIX, LockEntry, LockError, ModelLock, read_lock
from onboarding.names import (
    CANDIDATES_PREFIX,
    ENGINES_PREFIX,
    NETWORKS_PREFIX,
    UNREFERENCED_TAG,
    artifact_bucket,
    checkpoint_record_path,
    engine_record_path,
    stack_name,
)
from onboarding.promotion import read_promotion
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from onboarding.tree import Tree
from onboarding.workload import lock_type
from roundhouse.aws.clients import (
    COPIES,
    Client,
    bucket_exists,
    calling,
    list_objects,
    object_bytes,
    stored_objects,
)
from roundhouse.deploy.stacks import read_templates, stack_summaries
from roundhouse.errors import NotReadyError
from roundhouse.session import Session, valid_tree

DEPLOYED_KEY = re.compile(rf"(?:{ENGINES_PREFIX}|{CHECKPOINTS})/([0-9a-f]{{{KEY_LENGTH}}})/")
GONE = ("DELETE_COMPLETE", "DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS")
"""Stacks of nothing; the last was asked for, and its change set never executed."""
AT_ONCE = 16
LARGEST_COPY_BYTES = 5 * 1000**3
"""Of one CopyObject (Amazon S3 User Guide: 5 GB)."""
MARK = dict(zip(("Key", "Value"), UNREFERENCED_TAG, strict=True))
KEPT_FIELDS = (
    "CacheControl",
    "ContentDisposition",
    "ContentEncoding",
    "ContentLanguage",
    "ContentType",
)
"""Fields that a copy which replaces an object's metadata must be given again."""
Kind = Literal["checkpoint", "engine", "network"]
PREFIXES: dict[Kind, str] = {
    "engine": f"{ENGINES_PREFIX}/",
    "network": f"{NETWORKS_PREFIX}/",
    "checkpoint": f"{CHECKPOINTS}/",
}
RECORD_SUFFIX = ".json"
"""Of a checkpoint's record, which lies beside its folder."""


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """What one `roundhouse prune` found and, unless it was a dry run, did."""

    environment: str
    bucket: str
    dry_run: bool
    older_than_days: int
    kept_days: int
    found: tuple[Found, ...]

    def of(self, *verdicts: Verdict) -> tuple[Found, ...]:
        """Return those with one of these verdicts."""
        return tuple(item for item in self.found if item.verdict in verdicts)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "environment": self.environment,
            "bucket": self.bucket,
            "dry_run": self.dry_run,
            "older_than_days": self.older_than_days,
            "kept_days": self.kept_days,
            "found": [item.as_dict() for item in reportable(self.found)],
        }


def prune(
    session: Session,
    *,
    older_than_days: int,
    dry_run: bool,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Pruned:
    """Mark what nothing names and is old enough; take the mark off what is named again.

    Raises FaultsError when the tree has faults or a lock cannot be read: what cannot be read may
    name any engine.
    """
    bucket, s3 = artifact_bucket(session.environment), session.clients("s3")
    named = named_by_tree(session)
    if not bucket_exists(s3, bucket):
        raise NotReadyError(
            f"s3://{bucket}: is not there yet; `roundhouse deploy --env "
            f"{session.environment.name}` makes it."
        )
    title = f"Comparing s3://{bucket} with every lock and every deployed stack"
    with session.report.step(title) as step:
        deployed, kept_days = deployed_keys(session), session.environment.unreferenced_engine_days
        candidates = _candidate_keys(s3, bucket)
        decisions = [
            decide(
                stored,
                named,
                deployed,
                candidates=candidates if kind == "checkpoint" else (),
                now=clock(),
                older_than_days=older_than_days,
                kept_days=kept_days,
            )
            for kind, prefix in PREFIXES.items()
            for stored in group_objects(
                kind, with_marks(s3, bucket, objects_under(s3, bucket, prefix))
            )
        ]
        step.finish(
            f"{len(decisions)} engines, networks and checkpoints, {len(named)} keys named, "
            f"{len(deployed)} deployed"
        )
    if not dry_run:
        for verdict, act, service, title in (
            (Verdict.taken_back, take_off, "s3", "Taking marks off"),
            (Verdict.marked, mark, COPIES, "Marking"),
        ):
            chosen = [item.stored.objects for item in decisions if item.verdict is verdict]
            if chosen:
                with session.report.step(title) as step:
                    client = session.clients(service)
                    step.finish(f"{act(client, bucket, chain.from_iterable(chosen))} objects")
    shown = reportable(decisions)
    found = (
        replace(item, model=_model(s3, bucket, item.stored)) if item in shown else item
        for item in decisions
    )
    return Pruned(
        environment=session.environment.name,
        bucket=bucket,
        dry_run=dry_run,
        older_than_days=older_than_days,
        kept_days=kept_days,
        found=tuple(found),
    )


def named_by_tree(session: Session) -> frozenset[str]:
    """Return the keys of engines, networks and checkpoints that this tree needs.

    Of every lock and promotion of every environment, and of what is still to be built.
    """
    tree = valid_tree(session.paths)
    targets = [target for item in session.deployments() for target in item.built_targets]
    entries = [entry for lock in _locks(tree) for entry in lock.entries.values()]
    manifests = [entry.manifest for entry in entries if isinstance(entry, LockEntry)]
    needed = {entry.key for entry in entries}
    needed |= {key for item in session.generators() for key in item.plans}
    promoted = set[str]()
    for name in tree.environments:
        promotion = read_promotion(session.paths.tree, name)
        if promotion is not None:
            promoted |= promotion.archives.keys()
            promoted |= {item.checkpoint_key for item in promotion.checkpoints.values()}
    keys = [(target.engine_key, target.network_keys) for target in targets]
    keys += [(manifest.engine_key, manifest.network_keys) for manifest in manifests]
    needed |= {key for engine, networks in keys for key in (engine, *networks.values())}
    return frozenset(promoted | needed)


def deployed_keys(session: Session) -> frozenset[str]:
    """Return the keys in the templates of deployed endpoint stacks, of any branch.

    An endpoint fetches its engine or checkpoint again whenever it starts an instance.
    """
    client, prefix = session.clients("cloudformation"), stack_name(session.environment, "endpoint-")
    stacks = [
        name
        for name, stack in sorted(stack_summaries(client).items())
        if name.startswith(prefix) and stack.status not in GONE
    ]
    texts = (str(template) for _, template in read_templates(client, stacks))
    return frozenset(key for text in texts for key in DEPLOYED_KEY.findall(text))


def _candidate_keys(s3: Client, bucket: str) -> frozenset[str]:
    """Return the keys that builds of the last weeks made, of branches that are not merged too."""
    names = list_objects(s3, bucket, f"{CANDIDATES_PREFIX}/")
    return frozenset(name.split("/")[1] for name in names)


def _locks(tree: Tree) -> Iterator[ModelLock]:
    """Return every lock of every environment, of models that are no longer in the tree too."""
    faults = []
    for folder in sorted({environment.locks for environment in tree.environments.values()}):
        for path in sorted((tree.root / folder).glob(f"*{LOCK_SUFFIX}")):
            name = path.name.removesuffix(LOCK_SUFFIX)
            try:
                yield read_lock(path.parent, name, lock_type(path))
            except LockError as error:
                file = path.relative_to(tree.root).as_posix()
                faults.append(Fault(file=file, what=error.what, way_out=error.way_out))
    if faults:
        raise FaultsError(faults)


def _model(s3: Client, bucket: str, stored: Stored) -> str | None:
    """Return a model's name by the record of its engine or checkpoint; None without one."""
    if stored.kind == "network":
        return None
    path = (
        engine_record_path(stored.key)
        if stored.kind == "engine"
        else checkpoint_record_path(stored.key)
    )
    try:
        record = json.loads(object_bytes(s3, bucket, path) or b"")
        return str(record["manifest"]["model"] if stored.kind == "engine" else record["model"])
    except (ValueError, KeyError, TypeError):
        return None


def objects_under(s3: Client, bucket: str, prefix: str) -> tuple[StoredObject, ...]:
    """Return the objects of a bucket under a prefix; whether they are marked is not read."""
    return tuple(
        StoredObject(name=item["Key"], size_bytes=item["Size"], modified=item["LastModified"])
        for item in stored_objects(s3, bucket, prefix)
    )


def with_marks(
    s3: Client, bucket: str, objects: Iterable[StoredObject]
) -> tuple[StoredObject, ...]:
    """Return the same objects with whether they are marked."""

    def with_mark(item: StoredObject) -> StoredObject:
        return replace(item, is_marked=MARK in _tags(s3, bucket, item.name))

    return tuple(_at_once(with_mark, objects))


def mark(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Mark those that are not marked; return how many.

    S3 counts an expiration from the day an object was made, not from its tag: a tag alone would
    delete an old engine by the next morning. A copy in place, tag included, is made today; the
    version before it stays for the bucket's noncurrent days.
    """
    unmarked = [item for item in objects if not item.is_marked]
    _at_once(lambda item: _copy_in_place(s3, bucket, item), unmarked)
    return len(unmarked)


def take_off(s3: Client, bucket: str, objects: Iterable[StoredObject]) -> int:
    """Take the mark off those that bear it, leaving any other tag; return how many."""
    marked = [item for item in objects if item.is_marked]
    _at_once(lambda item: _untag(s3, bucket, item.name), marked)
    return len(marked)


def keep(s3: Client, bucket: str, prefixes: Iterable[str]) -> int:
    """Take the mark off everything under these prefixes; return how many objects bore it."""
    objects = [item for prefix in prefixes for item in objects_under(s3, bucket, prefix)]
    return take_off(s3, bucket, with_marks(s3, bucket, objects))


def _copy_in_place(s3: Client, bucket: str, item: StoredObject) -> None:
    name = item.name
    tags = [*_tags(s3, bucket, name), MARK]
    with calling(f"Marking s3://{bucket}/{name}"):
        head = s3.head_object(Bucket=bucket, Key=name)
        arguments = {
            **{field: head[field] for field in KEPT_FIELDS if field in head},
            # S3 refuses a copy onto itself that changes nothing but tags.
            "Metadata": {**head.get("Metadata", {}), MARK["Key"]: MARK["Value"]},
            "MetadataDirective": "REPLACE",
            "TaggingDirective": "REPLACE",
            "Tagging": urlencode({tag["Key"]: tag["Value"] for tag in tags}),
        }
        source = {"Bucket": bucket, "Key": name}
        if item.size_bytes <= LARGEST_COPY_BYTES:
            # Whole: of parts S3 would not know the sha256 that a checkpoint's file must have.
            s3.copy_object(Bucket=bucket, Key=name, CopySource=source, **arguments)
        else:
            s3.copy(source, bucket, name, ExtraArgs=arguments)


def _untag(s3: Client, bucket: str, name: str) -> None:
    tags = [tag for tag in _tags(s3, bucket, name) if tag != MARK]
    with calling(f"Taking the mark off s3://{bucket}/{name}"):
        if tags:
            s3.put_object_tagging(Bucket=bucket, Key=name, Tagging={"TagSet": tags})
        else:
            s3.delete_object_tagging(Bucket=bucket, Key=name)


def _tags(s3: Client, bucket: str, name: str) -> list[dict[str, str]]:
    with calling(f"Reading the tags of s3://{bucket}/{name}"):
        tags: list[dict[str, str]] = s3.get_object_tagging(Bucket=bucket, Key=name)["TagSet"]
    return tags


def _at_once(act: Callable[[StoredObject], Any], objects: Iterable[StoredObject]) -> list[Any]:
    """Return every result, or raise the first error once the others have ended."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        return list(threads.map(act, objects))


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
