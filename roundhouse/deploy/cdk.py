"""The stock cdk command line: bootstrap and deploy, and what it said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roundhouse.aws.clients import calling
from roundhouse.errors import DeployFailedError, NotReadyError
from roundhouse.processes import Command, Outcome
from roundhouse.report import Step
from roundhouse.session import Session

BOOTSTRAP_STACK = "CDKToolkit"
DEPLOY_OPTIONS = ("--require-approval", "never", "--concurrency", "4", "--no-notices", "--no-color")
DONE = re.compile(r"✅\s+(?P<name>\S+).*?(?P<same>\(no changes\))?\s*$")
FAILED = re.compile(r"❌\s+(?P<reason>.+)")
RESOURCE_FAILED = re.compile(r"(?:CREATE|UPDATE|DELETE)_FAILED\s*\|[^|]*\|\s*(?P<reason>\S.*)")
CANCELLED = re.compile(r"cancelled", re.IGNORECASE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The stacks of one `cdk deploy`: those it changed, those that were as they should be."""

    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


def bootstrap(session: Session) -> bool:
    """Bootstraps the account for the CDK, unless it is; True when it had to."""
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
    _run(
        session,
        "bootstrap",
        (str(session.paths.cdk), "bootstrap", target, "--no-notices"),
        folder=session.paths.build,
    )
    return True


def deploy(
    session: Session,
    *,
    only: tuple[str, ...] = (),
    assembly: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Deployed:
    """Synthesises, then deploys the environment's stacks, or `only` some. Raises DeployFailedError with
    CloudFormation's reason.

    `assembly`: deploy every stack of this folder instead, and synthesise nothing.
    """
    argv = (
        deploy_command(session, only) if assembly is None else assembly_command(session, assembly)
    )
    return deployed(
        _run(session, "deploy", argv, folder=session.paths.code, on_line=on_line).output
    )


def synthesise(session: Session, *, endpoints: Sequence[str]) -> Path:
    """Writes a cloud assembly with the stacks of these endpoints, by their names in the tree, and
    gives its folder.
    """
    only = tuple(f"*/Endpoint-{name}" for name in endpoints)
    argv = (
        str(session.paths.cdk),
        "synth",
        *only,
        *_app(session, endpoints),
        "--quiet",
        "--no-notices",
        "--no-color",
    )
    _run(session, "synth", argv, folder=session.paths.code)
    return _output(session)


def deploy_command(session: Session, only: tuple[str, ...]) -> tuple[str, ...]:
    """The command line; stack ids are `<stage>/<stack>`, so `**` is every stack of the only stage.

    On the road of some endpoints only, that stage holds their stacks and the foundation.
    """
    return (
        str(session.paths.cdk),
        "deploy",
        *(only or ("**",)),
        *_app(session, () if only else session.endpoints),
        *DEPLOY_OPTIONS,
    )


def assembly_command(session: Session, assembly: Path) -> tuple[str, ...]:
    """The command line that deploys a written assembly."""
    return (str(session.paths.cdk), "deploy", "--all", "--app", str(assembly), *DEPLOY_OPTIONS)


def tell(step: Step, line: str) -> None:
    """Shows a line of the command line's own."""
    # The CLI names the place in jsii's program that a message comes from, on a line of its own.
    if line.strip() and "lib/program.js" not in line:
        step.update(line)


def _app(session: Session, endpoints: Sequence[str]) -> tuple[str, ...]:
    """What synthesises, and of which endpoints alone; none: all."""
    root = () if session.paths.tree == session.paths.code else ("-c", f"root={session.paths.tree}")
    some = ("-c", f"endpoint={','.join(endpoints)}") if endpoints else ()
    return (
        "--app", f"{shlex.quote(str(session.paths.venv_python('roundhouse')))} app.py",
        "-c", f"env={session.environment.name}", *some, *root, "--output", str(_output(session)),
    )  # fmt: skip


def _output(session: Session) -> Path:
    return session.paths.build / "cdk" / session.environment.name


def deployed(output: str) -> Deployed:
    """Reads which stacks a deploy changed from what the CLI printed."""
    found = [match for match in map(DONE.search, _plain(output)) if match is not None]
    changed = dict.fromkeys(match["name"] for match in found if match["same"] is None)
    unchanged = dict.fromkeys(match["name"] for match in found if match["same"] is not None)
    return Deployed(
        changed=tuple(changed), unchanged=tuple(name for name in unchanged if name not in changed)
    )


def failure(output: str) -> str:
    """The reason of a failed deploy: CloudFormation's, the CLI's, or its last lines."""
    lines = _plain(output)
    reasons = [match["reason"] for match in map(FAILED.search, lines) if match is not None]
    annotations = [line.strip() for line in lines if line.startswith(("[Error at ", "ERROR "))]
    said = (
        annotations
        or (reasons[:2] + _resource_reasons(lines))
        or [line.strip() for line in lines if line.strip()][-3:]
    )
    return " ".join(": ".join(said).split()).rstrip(".")


def _resource_reasons(lines: list[str]) -> list[str]:
    """What the resources themselves said, each once; those that only fell with another are left
    out.
    """
    found = [match["reason"] for match in map(RESOURCE_FAILED.search, lines) if match is not None]
    return list(dict.fromkeys(reason for reason in found if CANCELLED.search(reason) is None))[:2]


def _plain(output: str) -> list[str]:
    return COLOUR.sub("", output).splitlines()


def _run(
    session: Session,
    verb: str,
    argv: tuple[str, ...],
    *,
    folder: Path,
    on_line: Callable[[str], None] | None = None,
) -> Outcome:
    if not session.paths.cdk.exists():
        raise NotReadyError(
            f"{session.paths.cdk}: the cdk command line is not there; `make environments` installs it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    outcome = session.run(Command(argv=argv, folder=folder, environment=session.variables), on_line)
    log = _keep_log(session, verb, argv, outcome)
    if outcome.code != 0:
        reason = failure(outcome.output)
        raise DeployFailedError(
            f"cdk {verb} failed, and what was deployed before keeps running: {reason}. Log: {log}"
        )
    return outcome


def _keep_log(session: Session, verb: str, argv: tuple[str, ...], outcome: Outcome) -> Path:
    log = session.paths.build / "logs" / f"cdk-{verb}-{session.environment.name}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ {shlex.join(argv)}\n{outcome.output}", encoding="utf-8")
    except OSError as error:
        raise NotReadyError(
            f"{log}: cannot be written ({error.strerror}); free the folder, then try again."
        ) from error
    return log
