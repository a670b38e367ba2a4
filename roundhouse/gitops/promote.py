"""Promotion: engines and checkpoints by digest to the next environment, and their commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.lock import BuiltEntry
from onboarding.names import artifact_bucket
from onboarding.promotion import FOLDER, Promotion, read_promotion
from onboarding.resolve import deployments
from onboarding.tree import Tree
from onboarding.workload import ENGINES, WORKLOADS, Endpoint
from roundhouse.aws.clients import COPIES, Client, Clients, assumed_clients, calling, pages
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.copies import Copied, Store, copy_entries
from roundhouse.gitops.markdown import markdown
from roundhouse.gitops.model_commits import (
    Moved,
    move_models,
    tree_endpoints,
    with_artifacts,
)
from roundhouse.paths import TREE_FOLDERS, Paths
from roundhouse.processes import Run
from roundhouse.report import Report
from roundhouse.revisions import Git, named_paths
from roundhouse.session import valid_tree
from stacks.alarms import endpoint_alarms

ClientsOf = Callable[[EnvironmentSpec], Clients]
"""The receiving account's AWS clients for an environment's region."""
Assume = Callable[[Clients, str, str, str], Clients]
"""`assumed_clients`: clients of a role of another account."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A promotion whose files are copied; `is_new` False: it is the present one."""

    promotion: Promotion
    is_new: bool
    copied: Copied


def prepare_promotion(
    paths: Paths,
    report: Report,
    *,
    source: str,
    destination: str,
    clients_of: ClientsOf,
    run: Run,
    models: Collection[str] = (),
    now: datetime | None = None,
    assume: Assume = assumed_clients,
) -> Prepared:
    """Copy what an environment needs; return the promotion that pins this commit.

    `models`: those that move to this commit, the others staying where they are; empty: all.
    Refused before anything is copied: an environment that promotes from another, a commit that is
    not on main, files that are not committed, gates that are not met (all at once). Nothing is
    built and no file is written. Promoting twice copies nothing the second time.
    """
    now = datetime.now(UTC) if now is None else now
    tree = valid_tree(paths)
    spec = _destination(tree, source, destination)
    git = Git(folder=paths.tree, run=run)
    present = read_promotion(paths.tree, destination)
    moved = _next_promotion(tree, spec, _merged_commit(git), models, present, git, paths.build)
    before = tree_endpoints(tree, source)
    with report.step("Checking the gates") as step:
        alarms = _alarm_client(tree.environments[source], spec, clients_of, assume)
        _require_gates(moved.endpoints, before, alarms, now)
        step.finish(f"{len(moved.endpoints)} endpoints")
    stores = [
        Store(bucket=artifact_bucket(item), s3=clients("s3"), copies=clients(COPIES))
        for item in (tree.environments[source], spec)
        for clients in (clients_of(item),)
    ]
    copied = Copied(copied=0, present=0)
    commands = {
        artifact.key: item.source_command(artifact)
        for item in before.values()
        for artifact in item.artifacts
    }
    for noun, entries in _entries_to_copy(moved.endpoints):
        with report.step(f"Copying {noun}s to {destination}") as step:
            count = copy_entries(stores[0], stores[1], entries, commands, step.update)
            step.finish(f"{count.copied} objects copied, {count.present} were there")
        copied = Copied(copied=copied.copied + count.copied, present=copied.present + count.present)
    if present is not None and not moved.is_new:
        return Prepared(promotion=present, is_new=False, copied=copied)
    promotion = moved.promotion.model_copy(update={"date": now.date().isoformat()})
    return Prepared(promotion=promotion, is_new=True, copied=copied)


def _next_promotion(
    tree: Tree,
    spec: EnvironmentSpec,
    commit: str,
    models: Collection[str],
    present: Promotion | None,
    git: Git,
    build: Path,
) -> Moved:
    """Return what the environment deploys after the promotion of all, or some, models."""
    wanted = tuple(tree_endpoints(tree, spec.name).values())
    assert spec.promotes_from is not None
    if models:
        if present is None:
            raise RoundhouseError(
                f"{spec.name} has no promotion, so it deploys the files as they are; promote the "
                "whole commit once, without --model. Single models can move from then on."
            )
        return move_models(present, dict.fromkeys(models, commit), wanted, git, build)
    whole = Promotion(
        environment=spec.name,
        source=spec.promotes_from,
        commit=commit,
        engines={},
        archives={},
        date="",
    )
    promotion = with_artifacts(whole, wanted)
    is_present = present is not None and deploys_same(git, tree, present, promotion)
    return Moved(promotion=promotion, endpoints=wanted, is_new=not is_present)


def deploys_same(git: Git, tree: Tree, one: Promotion, other: Promotion) -> bool:
    """True when two promotions deploy the same files and engines."""
    paths = (*TREE_FOLDERS, *named_paths(tree))
    sides = [(item.models, item.archives, item.checkpoints) for item in (one, other)]
    return sides[0] == sides[1] and not git.differ(one.commit, other.commit, paths)


def promotion_markdown(promotion: Promotion) -> str:
    """Return what a promotion deploys as Markdown."""
    lines = [
        f"`{promotion.environment}` deploys commit {promotion.commit[:12]}, engines by digest from "
        f"`{promotion.source}`; nothing is built. Reverting this pull request rolls it back."
    ]
    lines += [
        f"- {markdown(model)}: commit {commit[:12]}" for model, commit in promotion.models.items()
    ]
    return "\n".join(lines)


def _destination(tree: Tree, source: str, destination: str) -> EnvironmentSpec:
    """Return the environment that receives. Raises for one that does not promote from `source`."""
    for name in (source, destination):
        deployments(tree, name)
    spec = tree.environments[destination]
    if source == destination:
        raise RoundhouseError(
            f"--from {source} --to {destination}: an environment does not promote to itself; name "
            "the one that built the engines, and the one that receives them."
        )
    if spec.promotes_from != source:
        instead = spec.promotes_from
        raise RoundhouseError(
            f"environments/{destination}.yaml: promotes from {instead or 'no environment'}, not "
            f"from {source}; "
            + (f"use --from {instead}." if instead else f"write `promotes_from: {source}` there.")
        )
    return spec


def _merged_commit(git: Git) -> str:
    """Return the commit of the files. Raises unless they are committed, and merged to main."""
    commit, base = git.commit("HEAD"), git.default_base()
    if git.is_dirty(but=[FOLDER]):
        raise RoundhouseError(
            "A promotion pins a commit, and files of this tree are not committed as they are; "
            "commit or stash them (`git status` lists them)."
        )
    if git.merge_base(commit, git.commit(base)) != commit:
        raise RoundhouseError(
            f"Commit {commit[:12]} is not on {base}; merge it first, then promote from there."
        )
    return commit


def _alarm_client(
    source: EnvironmentSpec, destination: EnvironmentSpec, clients_of: ClientsOf, assume: Assume
) -> Client | None:
    """Return the client that reads the source's alarms; None where no quiet time is asked for.

    In another account its gate role reads them, which the receiving account's credentials assume:
    with these alone the receiver's own alarms would be read.
    """
    if destination.gates.quiet_minutes == 0:
        return None
    if source.account == destination.account:
        return clients_of(source)("cloudwatch")
    role = arns.pipeline_role(source, "gate")
    what = f"Role {role}, which the access stack of {source.name} makes to read its alarms"
    return assume(clients_of(destination), role, source.region, what)("cloudwatch")


def _require_gates(
    wanted: Sequence[Endpoint],
    before: Mapping[str, Endpoint],
    alarms: Client | None,
    now: datetime,
) -> None:
    faults: list[str] = []
    for item in wanted:
        gates, source = item.environment.gates, before.get(item.name)
        if source is None:
            faults.append(
                f"{item.name}: {item.environment.promotes_from} does not deploy it; deploy it "
                "there first"
            )
            continue
        since = now - timedelta(minutes=gates.quiet_minutes)
        rang = None if alarms is None else last_alarm(alarms, source, since, now)
        faults += gate_faults(item, source, rang)
    if faults:
        raise DeployFailedError(
            "Refused before anything was copied:\n" + "\n".join(f"  {fault}." for fault in faults)
        )


def gate_faults(deployment: Endpoint, source: Endpoint, rang: datetime | None) -> Iterator[str]:
    """Yield why an endpoint may not be promoted, one sentence each with the way out.

    `source`: the endpoint in the environment before; `rang`: when an alarm of it last rang within
    the quiet time that is asked for.
    """
    before, name = source.environment.name, deployment.environment.name
    served = {artifact.key for artifact in source.artifacts}
    for artifact in deployment.artifacts:
        if artifact.entry is None:
            yield (
                f"{artifact.model}: no lock of {before} has {artifact.key}; `roundhouse build "
                f"--env {before} --model {artifact.model}` builds it, where that environment "
                "serves the same instance type"
            )
        elif artifact.key not in served:
            yield (
                f"{artifact.model}: {before} does not serve {artifact.entry.noun} {artifact.key}, "
                f"which {name} needs, so nobody tested it there; give both the same instance types"
            )
        if artifact.entry is not None and artifact.entry.promotion_fault is not None:
            yield artifact.entry.promotion_fault
    faults = (deployment.problem, *deployment.signature_faults())
    yield from (fault.removesuffix(".") for fault in faults if fault is not None)
    if rang is not None:
        yield (
            f"{source.name}: an alarm rang at {rang:%Y-%m-%d %H:%M} UTC, within the last "
            f"{deployment.environment.gates.quiet_minutes} minutes (gates.quiet_minutes); find the "
            "cause, or wait"
        )


def _entries_to_copy(
    endpoints: Sequence[Endpoint],
) -> Iterator[tuple[str, list[BuiltEntry]]]:
    """Yield the noun of each kind of artifact, and what endpoints serve of it.

    An engine of the environment's own lock is copied too; whatever else is of it is there.
    """
    artifacts = {item.key: item for endpoint in endpoints for item in endpoint.artifacts}
    for workload in WORKLOADS:
        kind, are_engines = workload.lock.entry_type, workload is ENGINES
        entries = [
            item.entry
            for item in artifacts.values()
            if isinstance(item.entry, kind) and (are_engines or item.held_by is not None)
        ]
        if entries or are_engines:
            yield kind.noun, entries


def last_alarm(
    cloudwatch: Client, deployment: Endpoint, since: datetime, until: datetime
) -> datetime | None:
    """Return when an alarm of an endpoint was last in ALARM within a time; None: it was quiet.

    An alarm that adds the first instance or copy goes to ALARM at each start from zero, and is none
    of these.
    """
    if since >= until:
        return None
    prefix = f"{names.endpoint_name(deployment.environment, deployment.name)}-"
    watched = {alarm.name for alarm in endpoint_alarms(deployment)}
    with calling(f"Alarms of {prefix.rstrip('-')}"):
        ringing = {"AlarmNamePrefix": prefix, "StateValue": "ALARM"}
        alarms = pages(cloudwatch, "describe_alarms", "MetricAlarms", **ringing)
        if any(alarm["AlarmName"] in watched for alarm in alarms):
            return until
        changes = {"HistoryItemType": "StateUpdate", "StartDate": since, "EndDate": until}
        moments = [
            item["Timestamp"]
            for item in pages(cloudwatch, "describe_alarm_history", "AlarmHistoryItems", **changes)
            if item["AlarmName"] in watched and "to ALARM" in item["HistorySummary"]
        ]
    return max(moments, default=None)
