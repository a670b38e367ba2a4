"""The front as a process before an engine that is one, and the image that holds it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from container.server.settings import SettingsFault
from container.server.vllm.settings import read_engine_settings

ROOT = Path(__file__).resolve().parents[3]
ENGINE = (sys.executable, str(Path(__file__).with_name("engine_program.py")))
COMMAND = (sys.executable, "-W", "error", "-m", "container.server", "vllm")
VARIABLES = {"SM_VLLM_SERVED_MODEL_NAME": "chat", "SM_VLLM_MAX_MODEL_LEN": "64"}


@contextmanager
def front(*command, port=None, **variables):
    """A started front and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    own = {"SAGEMAKER_BIND_TO_PORT": str(port), "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1"}
    process = subprocess.Popen(
        (*COMMAND, *command), cwd=ROOT, env={**VARIABLES, **own, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(port, path, document=None):
    """A connection with an answer that is still to be read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    method, body = ("GET", None) if document is None else ("POST", json.dumps(document))
    connection.request(method, path, body, {"Content-Type": "application/json"})
    return connection, connection.getresponse()


def await_ready(port):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            connection, answer = ask(port, "/ping")
            connection.close()
            if answer.status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("not ready")


def test_sigterm_drains_streams_then_ends_the_engine():
    with front(*ENGINE) as (process, port):
        await_ready(port)
        order = json.dumps({"events": 4, "pause": 0.2})
        body = {"prompt": order, "stream": True, "max_tokens": 5}
        streams = [ask(port, "/v1/completions", body) for _ in range(8)]
        beginnings = [answer.read1(10) for _, answer in streams]
        process.send_signal(signal.SIGTERM)
        texts = [
            (begin + answer.read()).decode()
            for begin, (_, answer) in zip(beginnings, streams, strict=True)
        ]
        for connection, _ in streams:
            connection.close()
        log = process.communicate(timeout=10)[0]
    assert all(text.count("é") == 4 and text.endswith("data: [DONE]\n\n") for text in texts)
    assert process.returncode == 0 and "Warm: " in log and log.rstrip().endswith("Drained.")
    with pytest.raises(OSError):
        ask(port, "/ping")


@pytest.mark.parametrize(("status", "code"), [(7, 7), (0, 1)])
def test_an_engine_that_ends_ends_the_front_with_its_status(status, code):
    """It has the front's variables, and listens where only the front asks."""
    script = (
        "import os; assert os.environ['SM_VLLM_HOST'] == '127.0.0.1'; "
        "raise SystemExit(int(os.environ['STATUS']))"
    )
    with front(sys.executable, "-c", script, STATUS=str(status)) as (process, _):
        log = process.communicate(timeout=10)[0]
    assert process.returncode == code and f"The engine ended with status {status}" in log


def test_a_front_that_is_killed_takes_its_engine_along():
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with front(sys.executable, "-c", script) as (process, _):
        lines = iter(process.stdout.readline, "")
        pid = next(int(line) for line in lines if line.strip().isdigit())
        process.kill()
        until = time.monotonic() + 5
        while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < until:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                break
            time.sleep(0.02)
        else:
            assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("command", "variables", "code", "sentence"),
    [
        ((), {}, 2, "No command; the arguments are the engine's command"),
        (("x",), {"SM_VLLM_SERVED_MODEL_NAME": ""}, 2, "SM_VLLM_SERVED_MODEL_NAME is not set"),
        (("/nowhere",), {}, 4, "/nowhere cannot be started (No such file or directory)."),
        (("x",), {"ROUNDHOUSE_DRAIN_SECOND": "1"}, 2, "did you mean ROUNDHOUSE_DRAIN_SECONDS?"),
    ],
)
def test_refuses_to_start(command, variables, code, sentence):
    with front(*command, **variables) as (process, _):
        log = process.communicate(timeout=10)[0]
    assert process.returncode == code and sentence in log and "Traceback" not in log


NAME = {"SM_VLLM_SERVED_MODEL_NAME": "chat"}
QUEUED = {"SM_VLLM_MAX_NUM_SEQS": "8", "SM_VLLM_MAX_NUM_QUEUED_REQS": "12"}


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        (QUEUED, "most_sequences", 12),
        ({"SM_VLLM_MAX_NUM_SEQS": "8"}, "most_sequences", 16),
        ({}, "most_sequences", 512),
        ({"SM_VLLM_ENABLE_LORA": "true"}, "adapters", True),
    ],
)
def test_settings_are_read_as_awss_entry_point_reads_them(variables, field, value):
    assert getattr(read_engine_settings({**NAME, **variables}), field) == value


def test_refuses_every_wrong_variable_at_once():
    with pytest.raises(SettingsFault) as fault:
        read_engine_settings({"SM_VLLM_MAX_MODEL_LEN": "8k", "SM_VLLM_MAX_NUM_SEQS": "0"})
    names = ("SM_VLLM_SERVED_MODEL_NAME", "SM_VLLM_MAX_MODEL_LEN is '8k'", "MAX_NUM_SEQS is '0'")
    assert all(name in str(fault.value) for name in names)
