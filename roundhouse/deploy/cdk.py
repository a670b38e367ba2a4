"""The cdk command line: bootstrap, synth and deploy, and what is read from its output."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundhouse.aws.clients import calling
from roundhouse.errors import DeployFailedError, NotReadyError
from roundhouse.paths import writing
from roundhouse.processes import Command, Outcome
from roundhouse.report import Step
from roundhouse.session import Session

BOOTSTRAP_STACK = "CDKToolkit"
ALL = ("**",)
"""Every stack; stack ids are `<stage>/<stack>`."""
QUIET = ("--no-notices", "--no-color")
DONE = re.compile(r"✅\s+(?P<name>\S+).*?(?P<same>\(no changes\))?\s*$")
FAILED = re.compile(r"❌\s+(?P<reason>.+)")
RESOURCE_FAILED = re.compile(r"(?:CREATE|UPDATE|DELETE)_FAILED\s*\|[^|]*\|\s*(?P<reason>\S.*)")
CANCELLED = re.compile(r"cancelled", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STACK, NESTED = "aws:cloudformation:stack", "cdk:cloud-assembly"
MANIFEST = "manifest.json"
TEMPLATE_PROPERTIES = ("stackTemplateAssetObjectUrl", "additionalDependencies")
"""Properties that name the uploaded template; without them the cdk command line sends the file."""


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The stacks of one `cdk deploy`: those it changed, and those that had no changes."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Both counts, for a step's last line."""
        return f"{len(self.changed)} changed, {len(self.unchanged)} with no changes"


def bootstrap(session: Session) -> bool:
    """Bootstrap the account for the CDK, unless it is; return whether it had to."""
    from botocore.exceptions import ClientError

    with calling("Looking for the CDK's bootstrap stack"):
        try:
            session.clients("cloudformation").describe_stacks(StackName=BOOTSTRAP_STACK)
            return False
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
    target = f"aws://{session.environment.account}/{session.environment.region}"
    # Outside the repository, so that the CLI does not synthesise the application first.
    _run(session, "bootstrap", (target, "--no-notices"), folder=session.paths.build)
    return True


def synthesise(
    session: Session, stacks: tuple[str, ...] = ALL, endpoints: tuple[str, ...] = ()
) -> Path:
    """Write the environment's cloud assembly and return its folder.

    `stacks`: those whose faults count; `endpoints`: the only endpoints that the application holds,
    none: all. Raises DeployFailedError with the CDK's reason.
    """
    paths, output = session.paths, session.paths.build / "cdk" / session.environment.name
    root = () if paths.tree == paths.repository else ("-c", f"root={paths.tree}")
    some = ("-c", f"endpoint={','.join(endpoints)}") if endpoints else ()
    arguments = (
        *stacks, "--app", f"{shlex.quote(sys.executable)} app.py",
        "-c", f"env={session.environment.name}", *some, *root,
        "--output", str(output), "--quiet", *QUIET,
    )  # fmt: skip
    _run(session, "synth", arguments, folder=paths.repository)
    return output


def deploy(
    session: Session,
    assembly: Path,
    stacks: tuple[str, ...] = ALL,
    *,
    concurrency: int = 1,
    parameters: Sequence[str] = (),
    on_line: Callable[[str], None] | None = None,
) -> Deployed:
    """Deploy stacks of a cloud assembly. Raises DeployFailedError with CloudFormation's reason.

    Permissions are approved before this: the cdk command line asks nothing. `parameters` are
    STACK:KEY=VALUE; CloudFormation keeps the values of all others.
    """
    arguments = (
        *stacks, "--app", str(assembly), "--require-approval", "never",
        "--concurrency", str(concurrency), *QUIET,
        *(part for parameter in parameters for part in ("--parameters", parameter)),
    )  # fmt: skip
    return deployed_stacks(
        _run(session, "deploy", arguments, folder=session.paths.repository, on_line=on_line).output
    )


def show_line(step: Step, line: str) -> None:
    """Show a line of the command line's output as the step's progress."""
    # The CLI prints the place in jsii's program that a message comes from on a line of its own.
    if line.strip() and "lib/program.js" not in line:
        step.update(line)


def finished_stack(line: str) -> str | None:
    """Return the construct path of the stack whose deployment a line of output ends."""
    match = DONE.search(COLOUR.sub("", line))
    return None if match is None else match["name"]


def deployed_stacks(output: str) -> Deployed:
    """Return which stacks a deploy changed, by what the CLI printed."""
    matches = [match for match in map(DONE.search, _plain_lines(output)) if match is not None]
    changed = dict.fromkeys(match["name"] for match in matches if match["same"] is None)
    unchanged = dict.fromkeys(match["name"] for match in matches if match["same"] is not None)
    return Deployed(
        changed=tuple(changed), unchanged=tuple(name for name in unchanged if name not in changed)
    )


def failure_reason(output: str) -> str:
    """Return the reason of a failed command: CloudFormation's, the CLI's, or its last lines."""
    lines = _plain_lines(output)
    reasons = [match["reason"] for match in map(FAILED.search, lines) if match is not None]
    annotations = [line.strip() for line in lines if line.startswith(("[Error at ", "ERROR "))]
    parts = (
        annotations
        or (reasons[:2] + _resource_reasons(lines))
        or [line.strip() for line in lines if line.strip()][-3:]
    )
    return " ".join(": ".join(parts).split()).rstrip(".")


def _resource_reasons(lines: list[str]) -> list[str]:
    """Return the reasons of the resources themselves, without those that were only cancelled."""
    matches = (RESOURCE_FAILED.search(line) for line in lines)
    reasons = [match["reason"] for match in matches if match is not None]
    return list(dict.fromkeys(text for text in reasons if CANCELLED.search(text) is None))[:2]


def _plain_lines(output: str) -> list[str]:
    return COLOUR.sub("", output).splitlines()


def _run(
    session: Session,
    verb: str,
    arguments: tuple[str, ...],
    *,
    folder: Path,
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    cdk = session.paths.cdk
    if not cdk.exists():
        raise NotReadyError(
            f"{cdk}: the cdk command line is not there; `npm ci` in {session.paths.repository} "
            "installs it."
        )
    argv = (str(cdk), verb, *arguments)
    log = session.paths.build / "logs" / f"cdk-{verb}-{session.environment.name}.log"
    with writing(log):
        folder.mkdir(parents=True, exist_ok=True)
        command = Command(argv=argv, folder=folder, environment=session.variables)
        outcome = session.run(command, on_line)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ {shlex.join(argv)}\n{outcome.output}", encoding="utf-8")
    if outcome.code != 0:
        raise DeployFailedError(
            f"cdk {verb} failed, and what was deployed before keeps running: "
            f"{failure_reason(outcome.output)}. Log: {log}"
        )
    return outcome


@dataclass(frozen=True, kw_only=True)
class StackArtifact:
    """One stack of an assembly, with its manifest's version."""

    artifact_id: str
    content: Mapping[str, Any]
    folder: Path
    version: str

    @property
    def path(self) -> str:
        """Return the path of the stack's construct, as the cdk command line prints it."""
        return str(self.content.get("displayName", self.artifact_id))

    @property
    def file(self) -> Path:
        """Return the template's file."""
        return self.folder / str(self.content["properties"]["templateFile"])

    @property
    def template(self) -> dict[str, Any]:
        """Return the template that was synthesised."""
        template: dict[str, Any] = json.loads(self.file.read_text("utf-8"))
        return template


def stack_artifacts(assembly: Path) -> dict[str, StackArtifact]:
    """Return every stack of an assembly and of those nested in it, by stack name."""
    manifest = json.loads((assembly / MANIFEST).read_text("utf-8"))
    found: dict[str, StackArtifact] = {}
    for artifact_id, content in manifest["artifacts"].items():
        if content["type"] == NESTED:
            found |= stack_artifacts(assembly / content["properties"]["directoryName"])
        elif content["type"] == STACK:
            artifact = StackArtifact(
                artifact_id=artifact_id,
                content=content,
                folder=assembly,
                version=manifest["version"],
            )
            found[content["properties"].get("stackName", artifact_id)] = artifact
    return found


def write_assembly(
    folder: Path, stacks: Mapping[str, StackArtifact], templates: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write an assembly of the stacks that `templates` names, each with that template.

    Roles and tags are those that were synthesised.
    """
    artifacts, version = {}, ""
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, template in templates.items():
            stack = stacks[name]
            artifacts[stack.artifact_id], version = _alone(stack), stack.version
            (folder / stack.content["properties"]["templateFile"]).write_text(
                json.dumps(template, indent=1), "utf-8"
            )
        (folder / MANIFEST).write_text(
            json.dumps({"version": version, "artifacts": artifacts}, indent=1), "utf-8"
        )


def _alone(stack: StackArtifact) -> dict[str, Any]:
    """Return the artifact without what it depends on."""
    properties = {
        key: value
        for key, value in stack.content["properties"].items()
        if key not in TEMPLATE_PROPERTIES
    }
    kept = {
        key: stack.content[key]
        for key in ("type", "environment", "displayName")
        if key in stack.content
    }
    return {**kept, "properties": properties}
