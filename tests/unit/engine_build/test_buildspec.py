"""The buildspec's own commands in CodeBuild's shell, a program in the place of engine_build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from engine_build.options import options
from onboarding.plan_source import NO_PLAN, PlanSource

BUILDSPEC = Path(__file__).resolve().parents[3] / "engine_build" / "buildspec.yml"
SHELL = yaml.safe_load(BUILDSPEC.read_text())["env"]["shell"]
PROGRAM = """
import json, os, sys
print(json.dumps(sys.argv[1:]), file=sys.stderr)
print(os.environ["RESULT"], end="")
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def run_phases(tmp_path):
    """Runs both phases in one shell: exit code, the program's arguments, the exported reason."""
    (tmp_path / "engine_build").mkdir()
    (tmp_path / "engine_build" / "__main__.py").write_text(PROGRAM)
    phases = yaml.safe_load(BUILDSPEC.read_text())["phases"]
    build, after = ("\n".join(phases[name]["commands"]) for name in ("build", "post_build"))
    script = f"({build}); code=$?\n{after}\nprintf '%s\\n' \"$ROUNDHOUSE_REASON\"; exit $code"

    def run(result, code=0, **variables):
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RESULT": result,
            "CODE": str(code),
            "ROUNDHOUSE_ENVIRONMENT": "dev",
            "ROUNDHOUSE_MODEL": "tiny",
            "ROUNDHOUSE_BUCKET": "bucket",
            **variables,
        }
        done = subprocess.run(
            (shutil.which(SHELL) or SHELL, "-c", script),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        arguments, *errors = done.stderr.splitlines()
        assert errors == []
        return done.returncode, json.loads(arguments), done.stdout.removesuffix("\n")

    return run


def test_build_runs_engine_build_for_the_wanted_compute_capability(run_phases):
    given = {"ROUNDHOUSE_COMPUTE_CAPABILITY": "8.9", "ROUNDHOUSE_CANDIDATE": "0a1b-0"}
    code, arguments, reason = run_phases('{"status": "candidate"}', **given)
    assert (code, reason) == (0, "")
    assert arguments == [
        *("--root", ".", "--environment", "dev", "--model", "tiny", "--compute-capability", "8.9"),
        *("--out", "build/engine", "--publish", "s3://bucket", "--candidate", "0a1b-0"),
        *("--format", "json"),
    ]


def test_build_without_a_compute_capability_or_a_plan_names_none(run_phases):
    for given in ({}, {"ROUNDHOUSE_PLAN_FROM": NO_PLAN}):
        arguments = run_phases("{}", **given)[1]
        assert "--compute-capability" not in arguments and "--plan-from" not in arguments


def test_build_packages_the_plan_of_the_engine_that_it_is_given(run_phases):
    source = PlanSource(engine_key="0a" * 10, sha256="1b" * 32)
    arguments = run_phases("{}", ROUNDHOUSE_PLAN_FROM=str(source))[1]
    assert arguments[-4:] == ["--plan-from", str(source), "--format", "json"]
    required = ("--environment", "e", "--model", "m", "--out", "o")
    assert options((*required, *arguments[-4:-2])).plan_from == source


@pytest.mark.parametrize(
    ("code", "reason"), [(3, 'mean cosine 0.91 of "tiny", $wanted `0.99`'), (137, "")]
)
def test_a_failed_build_exports_its_reason_and_a_killed_one_none(code, reason, run_phases):
    result = json.dumps({"status": "failed", "reason": reason}) if reason else ""
    assert run_phases(result, code)[::2] == (code, reason)


def test_the_shell_reads_what_nvidias_images_set_for_it(run_phases, tmp_path):
    """CodeBuild ignores their entry point; BASH_ENV reaches a shell that nobody types into."""
    (tmp_path / "bashrc").write_text("export ROUNDHOUSE_MODEL=from-the-image\n")
    assert "from-the-image" in run_phases("{}", BASH_ENV=str(tmp_path / "bashrc"))[1]


def test_the_reason_is_a_variable_that_codebuild_tells():
    environment = yaml.safe_load(BUILDSPEC.read_text())["env"]
    assert environment["exported-variables"] == ["ROUNDHOUSE_REASON"]
