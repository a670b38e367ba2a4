"""`roundhouse demo --gpu`, whole, as a user runs it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("onnxruntime", reason="needs the environment that builds engines")

from roundhouse.processes import Command, Processes
from tests.gpu.minilm import ROOT

pytestmark = pytest.mark.gpu


def test_demo_answers_by_every_server_as_pytorch(machine, variables, record_property):
    argv = (machine.python, "-m", "roundhouse", "demo", "--gpu")
    ended = Processes()(Command(argv=argv, folder=ROOT, environment=variables))
    assert ended.code == 0, ended.output[-3000:]
    servers = ("Python server",) if machine.triton is None else ("Python server", "Triton")
    for server in servers:
        found = re.findall(
            rf"{server} with (\S+): ready in (\S+) s, worst cosine (\S+)", ended.output
        )
        assert len(found) == len(list((ROOT / "models").glob("*.yaml")))
        for model, seconds, worst in found:
            record_property(f"{server}, {model}", {"ready_seconds": seconds, "worst": worst})
