"""The workflow of docs/ci.md: it is YAML, and every command in it is one that `roundhouse`
knows.
"""

from __future__ import annotations

import re
import shlex

import pytest
import yaml
from typer.testing import CliRunner

from roundhouse.cli import app as cli
from tests.unit.roundhouse.engines import REPOSITORY

BLOCK = re.compile(r"```yaml\n(name: roundhouse\n.*?)```", re.DOTALL)
ROUNDHOUSE = "$ROUNDHOUSE "


def workflow():
    (text,) = BLOCK.findall((REPOSITORY / "docs/ci.md").read_text(encoding="utf-8"))
    return yaml.safe_load(text)


def lines():
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    return [line.strip() for step in steps for line in step.get("run", "").splitlines()]


def commands():
    return sorted(
        {line.removeprefix(ROUNDHOUSE) for line in lines() if line.startswith(ROUNDHOUSE)}
    )


def test_the_workflow_checks_builds_and_deploys():
    assert [command.split()[0] for command in commands()] == [
        "build",
        "check",
        "check-templates",
        "deploy",
        "images",
    ]


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_workflow_has_the_options_that_it_is_given(command):
    verb, *words = shlex.split(command)
    result = CliRunner().invoke(cli.app, [verb, "--help"], catch_exceptions=False)
    assert result.exit_code == 0
    for option in (word for word in words if word.startswith("--")):
        assert option in result.output.split()


def test_every_synthesis_looks_at_the_stacks_of_the_stage():
    """Without a pattern the command line looks at no stack of a stage, and an engine that no lock
    has passes.
    """
    synthesised = [line for line in lines() if line.startswith("npx cdk ")]
    assert len(synthesised) == 3 and all("'dev/*'" in line for line in synthesised)


def test_what_the_workflow_installs_from_is_there():
    (installed,) = {line.split()[-1] for line in lines() if "--require-hashes" in line}
    assert (REPOSITORY / installed).is_file() and (REPOSITORY / "package-lock.json").is_file()
