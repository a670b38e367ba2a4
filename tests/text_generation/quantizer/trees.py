"""Onboarding trees of a tiny Llama, and one run of the program that builds its checkpoints."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine_build.__main__ import main
from onboarding.generation_resolve import checkpoint_keys
from onboarding.rules.cases import generation_case
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, CheckpointEntry, read_record
from onboarding.tree import read_tree
from tests.text_generation.chat_spec import TEXTS, chat_spec, quantization
from tests.text_generation.tiny_llama import write_tiny_llama

ENVIRONMENT = """\
name: cloud
account: "111122223333"
region: us-east-1
platform: triton-26.05
"""
WIDE = {"kl_per_token": 2.0, "top1": 0.2, "perplexity_ratio": 2.0}
"""A budget that a random model holds in eight bits; it has no favourite tokens."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended: code, the JSON of its result, and its log."""

    code: int
    result: dict[str, Any]
    log: str


BLACKWELL = {"nvfp4", "mxfp4", "mxfp8"}
"""Formats that no older GPU has; INT8 is not measured there."""


def llama_tree(root: Path, *, schemes=("int8",), changes=None, **llama) -> Path:
    """Write a tree whose model `chat` is a tiny Llama of the tree, on GPUs of any format.

    `changes`: of the section `quantization`.
    """
    write_tiny_llama(root / "models/data/tiny", **llama)
    gpu = "ml.p6-b200.48xlarge" if BLACKWELL.intersection(schemes) else "ml.p5.48xlarge"
    section = quantization(*schemes, **WIDE) | (changes or {})
    lines = (line for line in TEXTS.read_text().splitlines() if len(line) > 60)
    (root / "models/data/calibration.txt").write_text("\n".join(lines) + "\n")
    write_model(root, chat_spec(root, "models/data/tiny", gpu, quantization=section))
    (root / "environments").mkdir(exist_ok=True)
    (root / "environments/cloud.yaml").write_text(ENVIRONMENT)
    return root


def write_model(root: Path, spec: dict[str, Any]) -> None:
    """Write models/chat.yaml."""
    (root / "models/chat.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def read_model(root: Path) -> dict[str, Any]:
    """Return the contents of models/chat.yaml."""
    return yaml.safe_load((root / "models/chat.yaml").read_text())


def keys(root: Path) -> dict[str, str]:
    """Return the checkpoint key of each scheme."""
    tree = read_tree(root)
    assert not tree.faults, list(map(str, tree.faults))
    case = generation_case(tree.views["cloud"].generators["chat"], tree.root)
    already = None if case.headers is None else case.headers.scheme
    return {scheme: key for key, scheme in checkpoint_keys(case.spec, tree.root, already).items()}


def run(root: Path, out: Path, *more: str, key: str | None = None) -> Ended:
    """Run the program for the first scheme of the tree, or another key."""
    chosen = next(iter(keys(root).values())) if key is None else key
    where = ("--root", str(root), "--environment", "cloud", "--model", "chat", "--out", str(out))
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main((*where, "--key", chosen, "--format", "json", *more), {}, stdout, stderr)
    return Ended(code=code, result=json.loads(stdout.getvalue()), log=stderr.getvalue())


def record_of(out: Path) -> CheckpointEntry:
    """Return the record of a work folder."""
    return read_record((out / RECORD_NAME).read_bytes())
