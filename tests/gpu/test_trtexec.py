"""What needs an NVIDIA GPU with trtexec; on any other machine these are counted as not run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from engine_build.trtexec import Request, Shapes, command

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("trtexec") is None or shutil.which("nvidia-smi") is None,
        reason="needs an NVIDIA GPU with trtexec and its driver",
    ),
]

TINY = Path(__file__).resolve().parents[1] / "fixtures" / "tiny_embedder" / "model.onnx"


def run(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_trtexec_compiles_a_plan_and_reads_its_version(tmp_path):
    plan = tmp_path / "model.plan"
    shapes = Shapes(inputs=("input_ids", "attention_mask", "token_type_ids"), batch=(1, 2, 4), sequence=(4, 8, 16))
    request = Request(network=TINY, plan=plan, precision="fp32", profiles=(shapes,), strongly_typed=True)
    compiled = run(*command(request, 10).argv)
    assert compiled.returncode == 0, compiled.stdout[-2000:]
    version = run("trtexec", f"--loadEngine={plan}", "--getPlanVersionOnly")
    assert version.returncode == 0, version.stdout[-2000:]
