"""The model file of `chat`, a tiny Llama of a tree, as every test of text generation writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onboarding.checkpoint import checkpoint_sha256

TEXTS = Path(__file__).resolve().parents[2] / "onboarding/data/texts/calibration.txt"


def chat_spec(root: Path, checkpoint: str, instance_type: str, **sections: Any) -> dict[str, Any]:
    """Return the model file of a checkpoint folder; `sections` stand in place of its own."""
    return {
        "name": "chat",
        "task": "text-generation",
        "source": {"checkpoint": checkpoint, "sha256": checkpoint_sha256(root / checkpoint)},
        "context": {"max_model_len": 512, "prompt_p95": 256, "output_p95": 64},
        "slo": {"ttft_p95_ms": 2000, "itl_p95_ms": 80, "concurrency": 4},
        "serving": {"max_num_queued_reqs": 64},
        "endpoint": {"instance_types": [instance_type]},
        **sections,
    }


def quantization(*schemes: str, **budget: float) -> dict[str, Any]:
    """Return the section `quantization` with a calibration of models/data/calibration.txt."""
    return {
        "schemes": list(schemes),
        "calibration": {"dataset": "models/data/calibration.txt", "samples": 24},
        "evaluation": {"samples": 16, "sample_tokens": 64},
        "budget": budget,
    }
