"""A tree whose text generator `chat` is a tiny Llama, and the interpreter that quantizes it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from onboarding.checkpoint import checkpoint_sha256
from roundhouse.deploy.builds import engines
from tests.local_cloud.account import ROOT

PYTHON = ROOT / ".venvs" / "quantizer" / "bin" / "python"
TEXTS = ROOT / "onboarding/data/texts/calibration.txt"
ENVIRONMENT = {
    "name": "local",
    "account": "000000000000",
    "region": "us-east-1",
    "platform": "triton-24.10-cpu",
    "builds": {"poll_seconds": 1, "at_once": 1},
    "source_buckets": [{"bucket": "acme-checkpoints", "prefix": "chat/"}],
}


def spec_of(checkpoint: Path) -> dict[str, Any]:
    """Return the model file of a checkpoint folder."""
    return {
        "name": "chat",
        "task": "text-generation",
        "source": {"checkpoint": "models/tiny", "sha256": checkpoint_sha256(checkpoint)},
        "context": {"max_model_len": 512, "prompt_p95": 256, "output_p95": 64},
        "slo": {"ttft_p95_ms": 2000, "itl_p95_ms": 80, "concurrency": 4},
        "quantization": {
            "schemes": ["bf16", "int8"],
            "calibration": {"dataset": "models/data/calibration.txt", "samples": 24},
            "evaluation": {"samples": 16, "sample_tokens": 64},
            "budget": {"kl_per_token": 5, "top1": 0.1, "perplexity_ratio": 5},
        },
        "serving": {"max_num_queued_reqs": 64},
        "endpoint": {"instance_types": ["ml.g5.xlarge"]},
    }


def write_tree(root: Path) -> Path:
    """Write the checkpoint, the model and the environment `local`."""
    command = (str(PYTHON), "-m", "tests.text_generation.tiny_llama", str(root / "models/tiny"))
    subprocess.run(command, cwd=ROOT, check=True)
    for folder in ("models/data", "environments"):
        (root / folder).mkdir(parents=True)
    (root / "models/data/calibration.txt").write_text(TEXTS.read_text())
    (root / "models/chat.yaml").write_text(yaml.safe_dump(spec_of(root / "models/tiny")))
    (root / "environments/local.yaml").write_text(yaml.safe_dump(ENVIRONMENT))
    return root


def build(session, checkpoints):
    """Build checkpoints as `roundhouse build` does; return their lock entries."""
    return engines.build_all(session, checkpoints, allow_dirty=True)
