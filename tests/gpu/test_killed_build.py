"""A build that is killed while trtexec compiles, and the same build again."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("orjson", reason="needs what the server needs")

from container.triton.manifest_check import running_compute_capability
from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.tensorrt.trtexec import trtexec_version
from tests.contract.server_process import until
from tests.gpu.networks import write_source
from tests.gpu.plans import GPU, ROOT

pytestmark = GPU


@pytest.fixture
def source(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    engine = {"precision": "fp32"}
    return write_source(
        "cross-encoder", tmp_path / "root", engine=engine, intermediate_size=64, **sizes
    )


def build_command(root, folder):
    names = ("--root", root, "--environment", "local-gpu", "--model", "cross-encoder")
    places = ("--out", folder / "out", "--publish", folder / "store")
    return tuple(map(str, (sys.executable, "-m", "engine_build", *names, *places)))


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def running_trtexec(folder):
    """Processes of trtexec that compile in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if argv[0].endswith(b"trtexec") and str(folder).encode() in b" ".join(argv):
            found.append(path.parent.name)
    return found


def test_build_that_is_killed_leaves_nothing_and_is_built_again(source, tmp_path, record_property):
    runner = Runner(Log(io.StringIO()))
    platform = trtexec_version(runner), running_compute_capability()
    if platform != ("10.6.0.26", "9.0"):
        pytest.skip(f"the source's platform is TensorRT 10.6.0.26 on a GPU of 9.0, not {platform}")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        "ROUNDHOUSE_BENCHMARK_SECONDS": "0.1",
    }
    command = build_command(source, tmp_path)
    options = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "text": True}
    (tmp_path / "store").mkdir()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, **options) as process:
        try:
            until(lambda: running_trtexec(tmp_path) or process.poll() is not None, "trtexec")
            assert process.poll() is None
            before = digests(tmp_path / "store")
        finally:
            process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    until(lambda: not running_trtexec(tmp_path), "the end of trtexec")
    assert digests(tmp_path / "store") == before
    assert not [name for name in before if "engines/" in name]
    ended = subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=300, **options)
    assert ended.returncode == 0, ended.stderr
    record_property("second_build", ended.stdout.strip().splitlines()[-1])
    after = digests(tmp_path / "store")
    assert before.items() <= after.items()
    assert [name for name in after if name.startswith("engines/")]
