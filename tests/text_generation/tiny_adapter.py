"""A small random LoRA adapter of tiny_llama's model, whose answers are others than its base's.

`python -m tests.text_generation.tiny_adapter FOLDER SEED RANK` writes one. Needs numpy only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from tests.text_generation.tiny_llama import (
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    write_safetensors,
)

MODULES = {
    "self_attn.q_proj": (HIDDEN, HEADS * HEAD_SIZE),
    "self_attn.v_proj": (HIDDEN, KV_HEADS * HEAD_SIZE),
    "mlp.down_proj": (INTERMEDIATE, HIDDEN),
}
"""Inputs and outputs of the modules that it changes."""


def write_tiny_adapter(folder: Path, *, seed: int = 0, rank: int = 8) -> Path:
    """Write an adapter as peft saves one, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    random, tensors = np.random.default_rng(seed), {}
    for layer in range(LAYERS):
        for module, (inputs, outputs) in MODULES.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            down = random.normal(0, 1 / np.sqrt(inputs), (rank, inputs))
            up = random.normal(0, 1 / np.sqrt(rank), (outputs, rank))
            tensors[f"{name}.lora_A.weight"] = down.astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = up.astype(np.float32)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny",
        "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none",
        "target_modules": sorted(name.rpartition(".")[2] for name in MODULES),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write_tiny_adapter(Path(sys.argv[1]), seed=int(sys.argv[2]), rank=int(sys.argv[3]))
