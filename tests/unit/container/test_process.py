"""The process of the server starts and ends as it should, with any signals and streams."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from container.server.app import tokenizer_fault

ROOT = Path(__file__).parents[3]
SERVER = [sys.executable, "-m", "container.server"]
NOWHERE = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SM_MODEL_DIR": "/nowhere"}
ARCHIVE_REFUSED, CANNOT_LISTEN = 3, 4


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, **options)


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-c", program])


@pytest.mark.parametrize("closed", [">&-", "2>&-", "> >(true) 2>&1"])
def test_exit_code_stands_whoever_reads_the_streams(closed):
    """A slow start lets the reader of a broken pipe end first."""
    process = run(["bash", "-c", f"exec {' '.join(SERVER)} {closed}"], env=NOWHERE)
    assert process.returncode == ARCHIVE_REFUSED
    assert "Traceback" not in process.stderr and "Exception" not in process.stderr


def test_termination_before_the_event_loop_runs_ends_with_zero():
    """Only a signal with a handler reaches a container's first process."""
    server = subprocess.Popen(SERVER, cwd=ROOT, env=NOWHERE, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None and not is_caught(server.pid, signal.SIGTERM):
            pass
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()


def is_caught(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in lines if line.startswith("SigCgt")]
    return bool(int(mask, 16) & 1 << number - 1)


def test_signal_after_the_event_loop_ended_changes_nothing():
    """Python drops its own handlers while it ends: a second SIGTERM would be the exit code."""
    program = """
import os, signal
from container.server.process import stop_event
from container.server.telemetry.failure_log import FailureLog
from container.server.app import _run
async def serving():
    stop_event()
code = _run(serving(), FailureLog(bool))
for number in (signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
print(code, signal.getsignal(signal.SIGTERM).name, signal.getsignal(signal.SIGINT).name)
"""
    assert run_program(program).stdout.split() == ["0", "SIG_IGN", "SIG_IGN"]


@pytest.mark.parametrize("address", ["x" * 300 + "..é", b"\xed\xa0\x80"])
def test_refuses_an_address_that_cannot_be_looked_up(address):
    process = run(SERVER, env={**NOWHERE, "ROUNDHOUSE_BIND_ADDRESS": address})
    assert process.returncode == CANNOT_LISTEN
    assert process.stderr.startswith("Cannot listen on ") and process.stderr.count("\n") == 1


def test_descriptor_limit_is_raised_as_far_as_is_allowed():
    program = """
import resource
from container.server.process import MOST_DESCRIPTORS, raise_descriptor_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
raise_descriptor_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, MOST_DESCRIPTORS))
"""
    assert run_program(program).stdout.split() == ["True"]


def test_freed_bodies_of_several_threads_go_back_to_the_system():
    """Without the bound the thresholds grow, and tens of megabytes stay."""
    program = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from container.server.process import bound_free_memory

def resident_kib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

if sys.argv[1:] == ["bound"]:
    bound_free_memory()
before = resident_kib()
with ThreadPoolExecutor(4) as threads:
    list(threads.map(lambda size: bytearray(size), [6_000_000, 24_000_000] * 20))
    list(threads.map(lambda size: bytearray(size), [6_000_000] * 20))
    print((resident_kib() - before) // 1024)
"""
    kept = [run([sys.executable, "-c", program, *how]).stdout for how in ((), ("bound",))]
    unbound, bound = map(int, kept)
    assert bound <= 4 and unbound >= bound + 8


PATH = Path("/opt/ml/model/tokenizer.json")
AGAIN, LARGER = "build the engine again.", "choose an instance type with more memory."


@pytest.mark.parametrize(
    ("fault", "reason", "way_out"),
    [
        (ValueError("not JSON"), "(not JSON)", AGAIN),
        (Exception("expected value at line 1\ncolumn 2"), "(expected value at line 1)", AGAIN),
        (Exception("\n  \nno kernel"), "(no kernel)", AGAIN),
        (MemoryError(), "memory that is left: MemoryError)", LARGER),
        (OSError(12, "Cannot allocate memory"), "memory that is left: ", LARGER),
    ],
)
def test_tokenizer_that_cannot_be_loaded_says_why_and_the_way_out(fault, reason, way_out):
    sentence = str(tokenizer_fault(PATH, fault))
    assert sentence.startswith(f"The tokenizer {PATH} cannot be loaded (")
    assert reason in sentence and sentence.endswith(way_out)
