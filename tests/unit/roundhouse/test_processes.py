"""The runner: what comes out, and that nothing is left."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from roundhouse.processes import Command, Processes


def _python(code: str, **more) -> Command:
    return Command(argv=(sys.executable, "-c", code), **more)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_processes_hand_over_each_line_and_the_exit_code():
    lines = []
    outcome = Processes()(
        _python("import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"),
        lines.append,
    )
    assert outcome.code == 3
    assert sorted(lines) == ["one", "two"]


def test_processes_feed_standard_input():
    assert Processes()(_python("print(input()[::-1])", stdin="abc\n")).output == "cba\n"


def test_refuses_a_program_that_is_not_there():
    outcome = Processes()(Command(argv=("/nowhere/at-all",)))
    assert outcome.code == 127
    assert "No such file" in outcome.output


def test_an_interrupt_ends_the_whole_group():
    spawn = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    pids = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Processes()(_python(spawn), interrupt)
    assert pids and not _alive(pids[0])


def test_stop_ends_what_another_thread_runs_and_lets_nothing_start():
    run, started = Processes(), threading.Event()
    outcomes = []
    command = _python("import time; print('up', flush=True); time.sleep(60)")
    thread = threading.Thread(target=lambda: outcomes.append(run(command, lambda _: started.set())))
    thread.start()
    assert started.wait(20)
    run.stop()
    thread.join(20)
    assert outcomes[0].code != 0
    assert run(_python("print('late')")).code == 127
    assert not run.live
