"""A tree whose text generator `chat` is a tiny Llama, and the interpreter that quantizes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from roundhouse.deploy.builds import engines
from tests.local_cloud.account import ROOT
from tests.text_generation.chat_spec import TEXTS, chat_spec, quantization

PYTHON = ROOT / ".venvs" / "quantizer" / "bin" / "python"
ENVIRONMENT = {
    "name": "local",
    "account": "000000000000",
    "region": "us-east-1",
    "platform": "triton-24.10-cpu",
    "builds": {"poll_seconds": 1, "at_once": 1},
    "source_buckets": [{"bucket": "acme-checkpoints", "prefix": "chat/"}],
}


def spec_of(root: Path) -> dict[str, Any]:
    """Return the model file of models/tiny."""
    section = quantization("bf16", "int8", kl_per_token=5, top1=0.1, perplexity_ratio=5)
    return chat_spec(root, "models/tiny", "ml.g5.xlarge", quantization=section)


def write_tree(root: Path) -> Path:
    """Write the checkpoint, the model and the environment `local`."""
    command = (str(PYTHON), "-m", "tests.text_generation.tiny_llama", str(root / "models/tiny"))
    subprocess.run(command, cwd=ROOT, check=True)
    for folder in ("models/data", "environments"):
        (root / folder).mkdir(parents=True)
    (root / "models/data/calibration.txt").write_text(TEXTS.read_text())
    (root / "models/chat.yaml").write_text(yaml.safe_dump(spec_of(root)))
    (root / "environments/local.yaml").write_text(yaml.safe_dump(ENVIRONMENT))
    return root


def build(session, checkpoints):
    """Build checkpoints as `roundhouse build` does; return their lock entries."""
    return engines.build_all(session, checkpoints, allow_dirty=True)
