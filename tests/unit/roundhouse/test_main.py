"""Ctrl-C while the command loads is one word and exit code 130, never a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roundhouse.dev.environments import install_command
from tests.unit.roundhouse.engines import REPOSITORY

STOPPING = """
import os, signal, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Stop())
"""


@pytest.fixture
def run_stopped(tmp_path):
    """Runs the installed command; a signal comes as a module begins to be loaded."""

    def run(module: str, by: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python").symlink_to(sys.executable)
        packages = tmp_path / "lib" / "python3.11" / "site-packages"
        packages.mkdir(parents=True)
        script = install_command(REPOSITORY, tmp_path)
        text = script.read_text(encoding="utf-8").replace(
            str(tmp_path / "bin" / "python"), sys.executable
        )
        script.write_text(
            text.replace("import sys\n", STOPPING.format(module=module, signal=by), 1),
            encoding="utf-8",
        )
        own = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        # A shell starts what it puts into the background with SIGINT ignored.
        command = ("env", "--default-signal=INT", str(script), *words)
        return subprocess.run(
            command, env=own, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )

    return run


@pytest.mark.parametrize(
    ("module", "by"),
    [
        ("typer", "SIGINT"),
        ("roundhouse.errors", "SIGTERM"),
        ("roundhouse.cli.app", "SIGINT"),
        ("pydantic", "SIGTERM"),
    ],
)
def test_a_signal_while_the_command_loads_is_reported_in_one_word(run_stopped, module, by):
    result = run_stopped(module, by, "check")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Stopped.\n")


def test_a_signal_before_the_entry_point_is_there_leaves_no_trace(run_stopped):
    result = run_stopped("roundhouse.__main__", "SIGINT", "check")
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")


def test_the_entry_point_gives_the_exit_code_of_the_command():
    command = (sys.executable, "-m", "roundhouse", "build")
    result = subprocess.run(
        command, cwd=Path(REPOSITORY), capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and "--env" in result.stderr
