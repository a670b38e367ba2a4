"""The buildspec's own commands, run by the shell that CodeBuild runs, with a program in the place
of engine_build.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

BUILDSPEC = Path(__file__).resolve().parents[3] / "engine_build" / "buildspec.yml"
SHELL = yaml.safe_load(BUILDSPEC.read_text())["env"]["shell"]
PROGRAM = """
import json, os, sys
print(json.dumps(sys.argv[1:]), file=sys.stderr)
print(os.environ["RESULT"], end="")
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def built(tmp_path):
    """Runs both phases in one shell, as CodeBuild does.

    Returns exit code, the program's arguments, and the exported reason.
    """
    (tmp_path / "engine_build").mkdir()
    (tmp_path / "engine_build" / "__main__.py").write_text(PROGRAM)
    phases = yaml.safe_load(BUILDSPEC.read_text())["phases"]
    build, after = ("\n".join(phases[name]["commands"]) for name in ("build", "post_build"))
    script = f"({build}); code=$?\n{after}\nprintf '%s\\n' \"$ROUNDHOUSE_REASON\"; exit $code"

    def run(result, code=0, **variables):
        given = {
            "ROUNDHOUSE_ENVIRONMENT": "dev",
            "ROUNDHOUSE_MODEL": "tiny",
            "ROUNDHOUSE_BUCKET": "bucket",
            **variables,
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "RESULT": result, "CODE": str(code), **given}
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


def test_build_runs_engine_build_for_the_wanted_compute_capability(built):
    code, arguments, reason = built('{"status": "built"}', ROUNDHOUSE_COMPUTE_CAPABILITY="8.9")
    assert (code, reason) == (0, "")
    assert arguments == [
        *("--root", ".", "--environment", "dev", "--model", "tiny", "--compute-capability", "8.9"),
        *("--out", "build/engine", "--publish", "s3://bucket", "--format", "json"),
    ]


def test_build_without_a_compute_capability_names_none(built):
    assert "--compute-capability" not in built("{}")[1]


def test_a_failed_build_exports_its_reason(built):
    said = 'mean cosine 0.91 of "tiny", $wanted `0.99`'
    code, _, reason = built(json.dumps({"status": "failed", "reason": said}), 3)
    assert (code, reason) == (3, said)


def test_a_killed_build_exports_none(built):
    assert built("", 137)[::2] == (137, "")


def test_the_shell_reads_what_nvidias_images_set_for_it(built, tmp_path):
    """CodeBuild ignores their entry point; BASH_ENV reaches a shell that nobody types into."""
    (tmp_path / "bashrc").write_text("export ROUNDHOUSE_MODEL=from-the-image\n")
    assert "from-the-image" in built("{}", BASH_ENV=str(tmp_path / "bashrc"))[1]


def test_the_reason_is_a_variable_that_codebuild_tells():
    assert yaml.safe_load(BUILDSPEC.read_text())["env"]["exported-variables"] == [
        "ROUNDHOUSE_REASON"
    ]
