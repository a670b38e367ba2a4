"""What a job refuses, in one sentence each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onboarding.checkpoint import checkpoint_sha256
from onboarding.tree import read_tree
from tests.text_generation.quantizer.trees import Ended, llama_tree, read_model, run, write_model

TINY = "models/data/tiny"


def change_config(folder: Path, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def of_more_layers(folder: Path) -> None:
    change_config(folder, num_hidden_layers=6)


def of_wider_layers(folder: Path) -> None:
    change_config(folder, intermediate_size=1024)


def with_more_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"]["unheard-of"] = 5000
    path.write_text(json.dumps(document))


FAULTS = {
    cut_off: "transformers cannot load the checkpoint",
    of_more_layers: "config.json and the tensors disagree: ",
    of_wider_layers: "config.json and the tensors disagree: ",
    with_more_tokens: "the tokenizer gives token 5000, but the model knows 1024",
}


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__)
def test_refuses_a_checkpoint(damage, tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("int8",))
    damage(root / TINY)
    refused = run_with_digest(root, tmp_path / "out")
    assert refused.code in (1, 5) and FAULTS[damage] in refused.result["reason"]
    assert "\n" not in refused.result["reason"] and "Traceback" not in refused.log
    assert not (tmp_path / "out/checkpoint.json").exists()


def run_with_digest(root: Path, out: Path) -> Ended:
    """Run with the digest that the damaged folder has; `check` refuses some of them."""
    spec = read_model(root)
    spec["source"]["sha256"] = checkpoint_sha256(root / TINY)
    write_model(root, spec)
    key = None if not read_tree(root).faults else "0" * 20
    return run(root, out, key=key)
