"""How the server's process ends, and that it does whatever became of its signals and streams."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from container.server.process import MIB, OTHERS, free_mib, raise_descriptor_limit

ROOT = Path(__file__).parents[3]
SERVER = f"exec {sys.executable} -m container.server"
NOWHERE = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SM_MODEL_DIR": "/nowhere"}
ARCHIVE_REFUSED = 3


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "> >(true) 2>&1", "2> >(true)"]
)
def test_exit_code_stands_whoever_reads_the_streams(closed):
    """A slow start lets the reader of a broken pipe end first."""
    done = subprocess.run(
        ["bash", "-c", f"{SERVER} {closed}"],
        cwd=ROOT,
        env=NOWHERE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == ARCHIVE_REFUSED
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_server_speaks_on_without_a_reader():
    program = (
        "from container.server.app import _print_line; import os; r, w = os.pipe(); "
        "os.close(r); os.dup2(w, 1); _print_line('a')"
    )
    done = run(f"{program}; from container.server.process import end; end(7)")
    assert (done.returncode, done.stderr) == (7, "")


def test_no_socket_gets_the_number_of_a_closed_stream():
    program = """
import os, socket
from container.server.process import open_standard_streams
os.close(0), os.close(2)
open_standard_streams()
print(socket.socket().fileno() > 2, os.readlink("/proc/self/fd/2"))
"""
    assert run(program).stdout.split() == ["True", "/dev/null"]


def test_termination_before_the_event_loop_runs_ends_with_zero():
    """Only a signal with a handler reaches a container's first process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "container.server"], cwd=ROOT, env=NOWHERE, stderr=subprocess.DEVNULL
    )
    try:
        while server.poll() is None and not _is_caught(server.pid, signal.SIGTERM):
            pass
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()


def _is_caught(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in lines if line.startswith("SigCgt")]
    return bool(int(mask, 16) & 1 << number - 1)


def test_signal_after_the_event_loop_ended_changes_nothing():
    """Python gives up its own handlers while it ends.

    A second SIGTERM would then be the exit code; ignoring stays.
    """
    program = """
import os, signal
from container.server.process import stop_event
from container.server.telemetry.failure_log import FailureLog
from container.server.app import _run
async def serving():
    stop_event()
    return 6
code = _run(serving(), FailureLog(bool))
for number in (signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
print(code, signal.getsignal(signal.SIGTERM).name, signal.getsignal(signal.SIGINT).name)
"""
    assert run(program).stdout.split() == ["6", "SIG_IGN", "SIG_IGN"]


def test_refuses_an_address_that_no_name_server_knows_how_to_look_up():
    for address in ("x" * 300 + "..é", b"\xed\xa0\x80"):
        environment = {**NOWHERE, "ROUNDHOUSE_BIND_ADDRESS": address}
        done = subprocess.run(
            [sys.executable, "-m", "container.server"],
            cwd=ROOT,
            env=environment,  # type: ignore[arg-type]
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 4
        assert done.stderr.startswith("Cannot listen on ") and done.stderr.count("\n") == 1


@pytest.fixture
def limits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_few_descriptors_become_enough(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    raise_descriptor_limit(1000)
    assert soft() == 1000 + OTHERS


def test_enough_descriptors_stay_as_they_are(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, limits[1]))
    raise_descriptor_limit(1000)
    assert soft() == 2000


def test_no_more_than_the_machine_allows(limits):
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    raise_descriptor_limit(limits[1])
    assert soft() == limits[1]


MACHINE = "MemTotal:       16000000 kB\nMemFree:          100000 kB\nMemAvailable:    8192000 kB\n"


def written(folder: Path, limit: str = "max") -> tuple[Path, Path]:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{700 * MIB}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {100 * MIB}\nslab 3\n")
    (folder / "meminfo").write_text(MACHINE)
    return folder, folder / "meminfo"


@pytest.mark.parametrize(
    ("limit", "mib"),
    [("max", 8000), (str(1000 * MIB), 400), (str(90_000 * MIB), 8000), (str(500 * MIB), -100)],
)
def test_lesser_of_the_groups_and_the_machines_counts(tmp_path, limit, mib):
    group, machine = written(tmp_path, limit)
    assert free_mib(group=group, machine=machine) == mib


def test_machine_counts_where_there_is_no_group(tmp_path):
    _, machine = written(tmp_path)
    assert free_mib(group=tmp_path / "none", machine=machine) == 8000


def test_nothing_is_known_where_nothing_can_be_read(tmp_path):
    (tmp_path / "odd").write_text("no numbers")
    for machine in (tmp_path / "none", tmp_path / "odd"):
        assert free_mib(group=tmp_path, machine=machine) is None
