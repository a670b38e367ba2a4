"""Stub processes as /proc shows them."""

from __future__ import annotations

import pytest

from container.triton_front.health import Stub, stub_processes

pytestmark = pytest.mark.unit


@pytest.fixture
def proc(tmp_path):
    """Triton, process 5, with a stub, a dead stub, and another child."""
    (tmp_path / "5" / "task" / "6").mkdir(parents=True)
    (tmp_path / "5" / "task" / "6" / "children").write_text("10 11 12 13 ")
    rows = (
        ("10", "triton_python_b", "S", b"stub\0/m/a/1/model.py\0x\0"),
        ("11", "triton_python_b", "Z", b""),
        ("12", "python3", "S", b"python3\0"),
    )
    for pid, name, state, command in rows:
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_text(f"{pid} ({name}) {state} 5 5 5")
        (tmp_path / pid / "cmdline").write_bytes(command)
    return tmp_path


def test_stubs_are_those_of_the_process_dead_ones_included(proc):
    assert stub_processes(5, proc) == (Stub(10, "/m/a/1/model.py", True), Stub(11, "", False))


def test_process_that_is_gone_has_none(proc):
    assert stub_processes(99, proc) == ()
