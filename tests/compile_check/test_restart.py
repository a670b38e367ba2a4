"""Builds that die: killed half-way and started again, and on a full disk.

Real processes, nothing stood in for.
"""

from __future__ import annotations

import json
import signal

import pytest

from tests.compile_check.builds import run_build
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check

STEPS = (
    *("fetch", "load", "export", "reference", "quantize", "check", "compile"),
    *("verify", "benchmark", "package", "publish"),
)
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

sys.exit(main(sys.argv[2:], os.environ, sys.stdout, Stream()))
"""
LIMITED = """
import resource, runpy, sys
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
runpy.run_module("engine_build", run_name="__main__")
"""


@pytest.fixture
def trees(tmp_path):
    root = write_tree(tmp_path / "root", model("tiny", "fp8"))
    return root, tmp_path / "out", tmp_path / "store"


def killed_at(step, trees, packages):
    """Kills a build with its first word of a step, so that nothing of the step is done.

    Returns its log and the steps that it began.
    """
    ended = run_build(*trees, program=("-c", KILLED, step), PIP_FIND_LINKS=packages)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stderr, first_steps(ended.stderr)


def first_steps(log):
    return [step for step in STEPS if f"\n{step}: " in f"\n{log}"]


def test_killed_build_goes_on_from_every_finished_step(wheel, trees):
    packages, (_, out, store) = str(wheel.parent), trees
    _, steps = killed_at("quantize", trees, packages)
    assert steps == ["fetch", "load", "export", "reference", "quantize"]
    log, steps = killed_at("verify", trees, "")
    assert steps == ["quantize", "check", "compile", "verify"]
    assert "float network" in log and log.count("is reused from") == 1
    log, steps = killed_at("publish", trees, "")
    assert log.count("is reused from") == 2
    assert "passed when the network was made" in log and "fetch" not in steps
    assert not list(store.glob("engines/*/lock-entry.json"))
    ended = run_build(*trees, "--format", "json", PIP_FIND_LINKS="")
    assert ended.returncode == 0, ended.stderr
    assert first_steps(ended.stderr) == ["publish"]
    key = json.loads(ended.stdout)["engine_key"]
    assert (store / f"engines/{key}/lock-entry.json").is_file()
    assert not (out / "scratch").exists()


@pytest.mark.parametrize("most_bytes", [40, 600, 60_000, 100_000])
def test_refuses_a_full_disk_in_one_sentence_and_publishes_nothing(most_bytes, wheel, trees):
    # A limit on the size of files does to a build what a full disk does, without filling one.
    program = ("-c", LIMITED, most_bytes)
    ended = run_build(*trees, program=program, PIP_FIND_LINKS=str(wheel.parent))
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("FAILED: ") and "File too large" in last, ended.stderr
    assert "Traceback" not in ended.stderr and ended.returncode in (1, 5, 6)
    _, out, store = trees
    assert not list(store.glob("engines/**/*.json"))
    assert not list(out.glob("**/.part-*"))
