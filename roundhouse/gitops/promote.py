"""Promotion: engines by digest from one environment to the next, and the commit it deploys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import artifact_bucket
from onboarding.promotion import Promotion, read_promotion, write_promotion
from onboarding.resolve import deployments
from onboarding.tree import Tree
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.copies import Copied, Store, copy_engines
from roundhouse.gitops.gates import evidence, gate_faults
from roundhouse.paths import TREE_FOLDERS, Paths
from roundhouse.processes import Run
from roundhouse.report import Report
from roundhouse.revisions import Git
from roundhouse.session import valid_tree

ClientsOf = Callable[[EnvironmentSpec], Clients]
"""The AWS clients for an environment's account and region."""


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """What a promotion did; `path` None: the environment was there already."""

    promotion: Promotion
    path: Path | None
    copied: Copied


def promote(
    paths: Paths,
    report: Report,
    *,
    source: str,
    destination: str,
    clients_of: ClientsOf,
    run: Run,
    now: datetime | None = None,
) -> Promoted:
    """Copy the engines that an environment needs, and write the promotion that pins this commit.

    Refused before anything is copied: an environment that promotes from another, a commit that is
    not on main, files that are not committed, gates that are not met (all at once). Nothing is
    built. Promoting twice does nothing the second time.
    """
    now = datetime.now(UTC) if now is None else now
    tree = valid_tree(paths)
    spec = _destination(tree, source, destination)
    git = Git(folder=paths.tree, run=run)
    commit = _merged_commit(git)
    wanted = deployments(tree, destination)
    before = {item.name: item for item in deployments(tree, source)}
    with report.step("Checking the gates") as step:
        alarms = clients_of(tree.environments[source])("cloudwatch")
        _require_gates(wanted, before, alarms, now)
        step.finish(f"{len(wanted)} endpoints")
    entries = {
        target.engine_key: target.lock_entry
        for item in wanted
        for target in item.targets
        if target.lock_entry is not None
    }
    stores = [
        Store(environment=item.name, bucket=artifact_bucket(item), s3=clients_of(item)("s3"))
        for item in (tree.environments[source], spec)
    ]
    with report.step(f"Copying engines to {destination}") as step:
        copied = copy_engines(stores[0], stores[1], list(entries.values()), step.update)
        step.finish(f"{copied.copied} objects copied, {copied.present} were there")
    promotion = Promotion(
        environment=destination,
        source=source,
        commit=commit,
        engines=_engine_names(wanted),
        archives={key: entry.archive.sha256 for key, entry in sorted(entries.items())},
        evidence={
            item.name: found
            for item in wanted
            if (found := evidence(item, before[item.name], spec.gates)) is not None
        },
        date=now.date().isoformat(),
    )
    present = read_promotion(paths.tree, destination)
    folders = (*TREE_FOLDERS, *(item.locks for item in tree.environments.values()))
    if (
        present is not None
        and present.archives == promotion.archives
        and not git.differ(present.commit, commit, folders)
    ):
        return Promoted(promotion=present, path=None, copied=copied)
    path = write_promotion(paths.tree, promotion)
    return Promoted(promotion=promotion, path=path, copied=copied)


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
    if git.is_dirty():
        raise RoundhouseError(
            "A promotion pins a commit, and files of this tree are not committed as they are; "
            "commit or stash them (`git status` lists them)."
        )
    if git.merge_base(commit, git.commit(base)) != commit:
        raise RoundhouseError(
            f"Commit {commit[:12]} is not on {base}; merge it first, then promote from there."
        )
    return commit


def _require_gates(
    wanted: Sequence[Deployment],
    before: dict[str, Deployment],
    alarms: Client,
    now: datetime,
) -> None:
    faults: list[str] = []
    for item in wanted:
        gates = item.environment.gates
        if item.name not in before:
            faults.append(
                f"{item.name}: {item.environment.promotes_from} does not deploy it; deploy it "
                "there first"
            )
            continue
        source = before[item.name]
        rang = last_alarm(alarms, source, now - timedelta(minutes=gates.quiet_minutes), now)
        faults += gate_faults(item, source, gates, now.date(), rang)
    if faults:
        raise DeployFailedError(
            "Refused before anything was copied:\n" + "\n".join(f"  {fault}." for fault in faults)
        )


def last_alarm(
    cloudwatch: Client, deployment: Deployment, since: datetime, until: datetime
) -> datetime | None:
    """Return when an alarm of an endpoint was last in ALARM within a time; None: it was quiet."""
    if since >= until:
        return None
    prefix = f"{names.endpoint_name(deployment.environment, deployment.name)}-"
    with calling(f"Alarms of {prefix.rstrip('-')}"):
        ringing = [
            alarm
            for page in cloudwatch.get_paginator("describe_alarms").paginate(
                AlarmNamePrefix=prefix, StateValue="ALARM"
            )
            for alarm in page["MetricAlarms"]
        ]
        if ringing:
            return until
        moments = [
            item["Timestamp"]
            for page in cloudwatch.get_paginator("describe_alarm_history").paginate(
                HistoryItemType="StateUpdate", StartDate=since, EndDate=until
            )
            for item in page["AlarmHistoryItems"]
            if item["AlarmName"].startswith(prefix) and "to ALARM" in item["HistorySummary"]
        ]
    return max(moments, default=None)


def _engine_names(wanted: Collection[Deployment]) -> dict[str, str]:
    """Return the engine key of each model; of a model with several, by instance type too."""
    keys: dict[str, dict[str, str]] = {}
    for item in wanted:
        for target in item.targets:
            of_model = keys.setdefault(target.model.name, {})
            of_model[target.instance_type.name] = target.engine_key
    return {
        model if len(set(of_model.values())) == 1 else f"{model}/{instance}": key
        for model, of_model in sorted(keys.items())
        for instance, key in sorted(of_model.items())
    }
