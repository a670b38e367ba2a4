"""The stock cdk command line: bootstrap and deploy, and what it said."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workbench.aws import calling
from workbench.errors import DeployFailed, DeskError
from workbench.processes import Command, Outcome
from workbench.road import Road

BOOTSTRAP_STACK = "CDKToolkit"
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


def bootstrap(road: Road) -> bool:
    """Bootstraps the account for the CDK, unless it is; True when it had to."""
    from botocore.exceptions import ClientError

    with calling("Looking for the CDK's bootstrap stack"):
        try:
            road.clients("cloudformation").describe_stacks(StackName=BOOTSTRAP_STACK)
            return False
        except ClientError as error:
            if "does not exist" not in str(error):
                raise
    target = f"aws://{road.environment.account}/{road.environment.region}"
    # Outside the repository, so that the CLI does not synthesise the application first.
    _run(road, "bootstrap", (str(road.places.cdk), "bootstrap", target, "--no-notices"), folder=road.places.build)
    return True


def deploy(road: Road, *, only: tuple[str, ...] = (), on_line: Callable[[str], None] | None = None) -> Deployed:
    """Synthesises, then deploys the environment's stacks, or `only` some. Raises DeployFailed with CloudFormation's reason."""
    outcome = _run(road, "deploy", deploy_command(road, only), folder=road.places.code, on_line=on_line)
    return deployed(outcome.output)


def deploy_command(road: Road, only: tuple[str, ...]) -> tuple[str, ...]:
    """The command line; stack ids are `<stage>/<stack>`, so `**` is every stack of the only stage."""
    root = () if road.places.tree == road.places.code else ("-c", f"root={road.places.tree}")
    return (
        str(road.places.cdk), "deploy", *(only or ("**",)),
        "--app", f"{shlex.quote(str(road.places.venv_python('workbench')))} app.py",
        "-c", f"env={road.environment.name}", *root,
        "--output", str(road.places.build / "cdk" / road.environment.name),
        "--require-approval", "never", "--concurrency", "4", "--no-notices", "--no-color",
    )  # fmt: skip


def deployed(output: str) -> Deployed:
    """Reads which stacks a deploy changed from what the CLI printed."""
    found = [match for match in map(DONE.search, _plain(output)) if match is not None]
    changed = dict.fromkeys(match["name"] for match in found if match["same"] is None)
    unchanged = dict.fromkeys(match["name"] for match in found if match["same"] is not None)
    return Deployed(changed=tuple(changed), unchanged=tuple(name for name in unchanged if name not in changed))


def failure(output: str) -> str:
    """The reason of a failed deploy: CloudFormation's, the CLI's, or its last lines."""
    lines = _plain(output)
    reasons = [match["reason"] for match in map(FAILED.search, lines) if match is not None]
    annotations = [line.strip() for line in lines if line.startswith(("[Error at ", "ERROR "))]
    said = annotations or (reasons[:2] + _resource_reasons(lines)) or [line.strip() for line in lines if line.strip()][-3:]
    return " ".join(": ".join(said).split()).rstrip(".")


def _resource_reasons(lines: list[str]) -> list[str]:
    """What the resources themselves said, each once; those that only fell with another are left out."""
    found = [match["reason"] for match in map(RESOURCE_FAILED.search, lines) if match is not None]
    return list(dict.fromkeys(reason for reason in found if CANCELLED.search(reason) is None))[:2]


def _plain(output: str) -> list[str]:
    return COLOUR.sub("", output).splitlines()


def _run(road: Road, verb: str, argv: tuple[str, ...], *, folder: Path, on_line: Callable[[str], None] | None = None) -> Outcome:
    if not road.places.cdk.exists():
        raise DeskError(f"{road.places.cdk}: the cdk command line is not there; `make environments` installs it.")
    folder.mkdir(parents=True, exist_ok=True)
    outcome = road.run(Command(argv=argv, folder=folder, environment=road.variables), on_line)
    log = _keep_log(road, verb, argv, outcome)
    if outcome.code != 0:
        reason = failure(outcome.output)
        raise DeployFailed(f"cdk {verb} failed, and what was deployed before keeps running: {reason}. Log: {log}")
    return outcome


def _keep_log(road: Road, verb: str, argv: tuple[str, ...], outcome: Outcome) -> Path:
    log = road.places.build / "logs" / f"cdk-{verb}-{road.environment.name}.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ {shlex.join(argv)}\n{outcome.output}", encoding="utf-8")
    except OSError as error:
        raise DeskError(f"{log}: cannot be written ({error.strerror}); free the folder, then try again.") from error
    return log
