"""A folder that one process holds at a time."""

from __future__ import annotations

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


def test_second_run_is_refused_until_the_first_ended_however_it_did(tmp_path):
    folder = tmp_path / "dev"
    program = (sys.executable, "-c", HOLDER, str(folder))
    with subprocess.Popen(
        program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            says = rf"a comparison of dev is under way .* holds {folder}; wait for it\.$"
            with pytest.raises(RoundhouseError, match=says), hold(folder):
                raise AssertionError
        finally:
            holder.kill()
    with pytest.raises(ValueError, match="fault"), hold(folder):
        raise ValueError("fault")
    with hold(folder):
        """Neither a killed process nor a fault holds anything."""


def test_refuses_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReadyError, match="cannot be written"), hold(tmp_path / "file"):
        raise AssertionError
