"""`roundhouse prune`: tags what no lock names, for the bucket's lifecycle to delete in time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from onboarding.fault import Fault, FaultsError
from onboarding.keys import KEY_LENGTH
from onboarding.lock import LOCK_SUFFIX, Lock, LockError, read_lock
from onboarding.names import (
    CANDIDATES_PREFIX,
    ENGINES_PREFIX,
    artifact_bucket,
    checkpoint_record_path,
    engine_record_path,
    stack_name,
)
from onboarding.promotion import read_promotion
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from onboarding.text_generation.checkpoint_lock import (
    GenerationLock,
    is_generation_lock,
    read_generation_lock,
)
from onboarding.tree import Tree
from roundhouse.aws.clients import COPIES, Client, bucket_exists, list_objects, object_bytes
from roundhouse.deploy.pruning.tags import mark, objects_under, take_off, with_marks
from roundhouse.deploy.pruning.unreferenced import (
    PREFIXES,
    Found,
    Stored,
    Verdict,
    decide,
    group_objects,
    reportable,
)
from roundhouse.deploy.stacks import read_templates, stack_summaries
from roundhouse.errors import NotReadyError
from roundhouse.session import Session, valid_tree

DEPLOYED_KEY = re.compile(rf"(?:{ENGINES_PREFIX}|{CHECKPOINTS})/([0-9a-f]{{{KEY_LENGTH}}})/")
GONE = ("DELETE_COMPLETE", "DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS")
"""Stacks of nothing; the last was asked for, and its change set never executed."""


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
    locks = tuple(_locks(tree))
    engine_locks = [lock for lock in locks if isinstance(lock, Lock)]
    manifests = [entry.manifest for lock in engine_locks for entry in lock.engines.values()]
    checkpoints = {
        key for lock in locks if isinstance(lock, GenerationLock) for key in lock.checkpoints
    }
    checkpoints |= {key for item in session.generators() for key in item.plans}
    promoted = set[str]()
    for name in tree.environments:
        promotion = read_promotion(session.paths.tree, name)
        if promotion is not None:
            promoted |= promotion.archives.keys()
            promoted |= {item.checkpoint_key for item in promotion.checkpoints.values()}
    keys = [(target.engine_key, target.network_keys) for target in targets]
    keys += [(manifest.engine_key, manifest.network_keys) for manifest in manifests]
    needed = {key for engine, networks in keys for key in (engine, *networks.values())}
    return frozenset(promoted | needed | checkpoints)


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


def _locks(tree: Tree) -> Iterator[Lock | GenerationLock]:
    """Return every lock of every environment, of models that are no longer in the tree too."""
    faults = []
    for folder in sorted({environment.locks for environment in tree.environments.values()}):
        for path in sorted((tree.root / folder).glob(f"*{LOCK_SUFFIX}")):
            name = path.name.removesuffix(LOCK_SUFFIX)
            try:
                if is_generation_lock(path):
                    yield read_generation_lock(path.parent, name)
                else:
                    yield read_lock(path.parent, name)
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
