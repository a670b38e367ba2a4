"""Writes the change to newer packages on a branch, and plans what it rebuilds."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundhouse.errors import NotReadyError
from roundhouse.gitops.branch import Branch
from roundhouse.gitops.markdown import markdown, markdown_table
from roundhouse.gitops.plan_document import EngineChange, Plan
from roundhouse.gitops.platform_upgrade import (
    DATA,
    Finding,
    PackageFacts,
    platform_upgrade,
)
from roundhouse.paths import Paths
from roundhouse.processes import Command, Run
from roundhouse.revisions import Git
from roundhouse.session import valid_tree
from roundhouse.text import quantity

FINDING_COLUMNS = ("what", "here", "packages", "to do", "by")
ENGINE_COLUMNS = ("model", "engine", "for", "because", "minutes", "USD")


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What an upgrade found and wrote; `branch` None: there is nothing to write."""

    environment: str
    platform: str
    findings: tuple[Finding, ...]
    branch: str | None = None
    commit: str | None = None
    engines: tuple[EngineChange, ...] = ()
    """Engines that the branch needs and no lock has."""
    faults: tuple[str, ...] = ()
    """Why the branch cannot be deployed as it is."""

    @property
    def title(self) -> str:
        """Return the title of the pull request."""
        return f"Upgrade {self.environment} to {self.platform}"

    def as_dict(self) -> dict[str, Any]:
        """Return the upgrade as plain JSON."""
        return {
            "environment": self.environment,
            "platform": self.platform,
            "findings": [finding.as_dict() for finding in self.findings],
            "branch": self.branch,
            "commit": self.commit,
            "engines": [engine.model_dump(mode="json") for engine in self.engines],
            "faults": list(self.faults),
        }


def upgrade(
    paths: Paths, environment: str, facts: PackageFacts, today: str, run: Run, *, push: bool = False
) -> Upgrade:
    """Compare, write what follows from the packages on a branch, and plan it.

    A branch that is there already, with what people added, is continued. `push`: the remote's
    branch is read first, and written. Raises FaultsError for faults of the files, NotReadyError
    where git or the plan fails.
    """
    # An unknown environment is refused with the names of those that exist.
    from onboarding.resolve import deployments

    deployments(valid_tree(paths), environment)
    first = platform_upgrade(environment, paths.tree, facts, today)
    if not first.texts:
        return Upgrade(
            environment=environment, platform=first.platform, findings=first.findings
        )  # fmt: skip
    branch = Branch(folder=paths.code, name=f"roundhouse/upgrade-{first.platform}", run=run)
    pushed = branch.remote_commit() if push else None
    if push:
        branch.fetch()
    head = Git(folder=paths.code, run=run).commit("HEAD")
    tip = branch.tip() or head
    with tempfile.TemporaryDirectory(prefix="roundhouse-upgrade-") as folder:
        with branch.work_tree(Path(folder) / "before", tip) as tree:
            found = platform_upgrade(environment, tree, facts, today)
        commit = branch.commit(
            found.texts, f"Upgrade {environment} to {found.platform}", parent=tip
        )  # fmt: skip
        branch.replace_local(commit)
        with (
            branch.work_tree(Path(folder) / "tree", commit) as tree,
            branch.work_tree(Path(folder) / "code", head) as code,
        ):
            plan = _plan_branch(tree, code, environment, head, run)
    if push:
        branch.replace(pushed, commit)
    return Upgrade(
        environment=environment,
        platform=found.platform,
        findings=found.findings,
        branch=branch.name,
        commit=commit,
        engines=tuple(engine for item in plan.environments for engine in item.missing),
        faults=(
            *plan.faults,
            *(
                f"{endpoint.name}: {fault}"
                for item in plan.environments
                for endpoint in item.endpoints
                for fault in endpoint.faults
            ),
        ),
    )


def _plan_branch(tree: Path, code: Path, environment: str, base: str, run: Run) -> Plan:
    """Return the plan of a branch's files by the code of `base` and the branch's platform data.

    In a process of its own, since platform data is read once a process; no code of the branch runs.
    """
    for file in (tree / DATA).glob("*.yaml"):
        shutil.copyfile(file, code / DATA / file.name)
    out = code.parent / "plan.json"
    options = ("--root", str(tree), "--env", environment, "--against", base, "--out", str(out))
    command = (sys.executable, "-m", "roundhouse", "plan", *options, "--format", "json")
    outcome = run(Command(argv=command, folder=code))
    if not out.is_file():
        raise NotReadyError(f"The plan of the branch failed: {outcome.last_lines()}.")
    return Plan.model_validate_json(out.read_bytes())


def finding_rows(findings: Sequence[Finding]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of findings."""
    for item in findings:
        by = "this branch" if item.is_edit else "a person"
        yield item.what, item.here, item.packages, item.action, by


def engine_rows(engines: Sequence[EngineChange]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table of engines to rebuild, with what the last build of each took."""
    for engine in engines:
        estimate = engine.estimate
        minutes = usd = None
        if estimate is not None:
            minutes, usd = estimate.minutes, estimate.usd
        yield (
            engine.model,
            engine.key[:8],
            f"{engine.gpu or 'CPU'}, {engine.instance_type}",
            "; ".join(cause.path for cause in engine.because) or "not built yet",
            "unknown" if minutes is None else f"{minutes:g}",
            "unknown" if usd is None else f"{usd:.2f}",
        )


def engine_total(engines: Sequence[EngineChange]) -> str:
    """Return minutes and USD of all builds in one line; what is not known is said."""
    estimates = [engine.estimate for engine in engines]
    minutes = [None if item is None else item.minutes for item in estimates]
    usd = [None if item is None else item.usd for item in estimates]
    parts = []
    for values, unit, form in ((minutes, "minutes", "{:g}"), (usd, "USD", "{:.2f}")):
        known = [value for value in values if value is not None]
        unknown = len(values) - len(known)
        total = form.format(sum(known))
        parts.append(f"{total} {unit}" + (f" and {unknown} unknown" if unknown else ""))
    return f"{quantity(len(engines), 'engine')} to rebuild: {', '.join(parts)}"


def pull_request_body(result: Upgrade) -> str:
    """Return the Markdown of the pull request."""
    lines = [
        f"The installed packages are newer than the platform of {markdown(result.environment)}.",
        "",
        markdown_table(FINDING_COLUMNS, finding_rows(result.findings)),
    ]
    if result.engines:
        table = markdown_table(ENGINE_COLUMNS, engine_rows(result.engines))
        lines += ["", f"**{engine_total(result.engines)}**", "", table]
    if result.faults:
        lines += ["", "**Cannot be deployed yet:**", ""]
        lines += [f"- {markdown(fault)}" for fault in result.faults]
    lines += [
        "",
        "Never merged by itself: the builds measure accuracy and latency of every engine anew, and "
        "the plan's comment compares them with the present ones.",
    ]
    return "\n".join(lines) + "\n"
