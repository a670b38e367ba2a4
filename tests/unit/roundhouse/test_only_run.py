"""A folder that one process holds at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.only_run import only_run

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
HOLDER = """\
import sys
from pathlib import Path
from roundhouse.only_run import only_run
with only_run(Path(sys.argv[1]), "a comparison of dev", "wait"):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder):
    return only_run(folder, "a comparison of dev", "wait for it")


def test_second_run_is_refused_and_the_refusal_names_the_first(tmp_path):
    program = (sys.executable, "-c", HOLDER, str(tmp_path / "dev"), "compare")
    with subprocess.Popen(
        program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(RoundhouseError) as refused, hold(tmp_path / "dev"):
                raise AssertionError
            message, place = str(refused.value), tmp_path / "dev"
            begin = "Refused: a comparison of dev is under way on this machine ("
            assert message.startswith(f"{begin}process {holder.pid} since 20")
            assert message.endswith(f"{place} compare, which holds {place}); wait for it.")
        finally:
            holder.kill()
    with hold(tmp_path / "dev"):
        """A killed process holds nothing, and its words are gone."""
    assert (tmp_path / "dev/run.lock").read_text() == ""


def test_folder_is_free_after_a_fault(tmp_path):
    with pytest.raises(ValueError, match="fault"), hold(tmp_path):
        raise ValueError("fault")
    with hold(tmp_path):
        assert f"process {os.getpid()} since" in (tmp_path / "run.lock").read_text()


def test_refuses_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReadyError, match="cannot be written"), hold(tmp_path / "file"):
        raise AssertionError
