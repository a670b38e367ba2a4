"""The two builds of torch: their locks, and the indexes that environments take them from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roundhouse.dev.recipes import (
    OPTIONAL,
    RECIPES,
    TORCH_CPU,
    TORCH_CUDA,
)
from tests.locked_requirements import _pinned, _wanted

ROOT = Path(__file__).resolve().parents[4]
REQUIREMENTS = ROOT / "requirements"
WITH_TORCH = [recipe for recipe in (*RECIPES, *OPTIONAL.values()) if recipe.has_torch]


def pins(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE))


def test_both_builds_of_torch_are_of_one_version_and_hashed():
    cpu, cuda = pins(TORCH_CPU), pins(TORCH_CUDA)
    assert cpu == {"torch": f"{cuda['torch']}+cpu"}
    digests = re.findall(
        r"--hash=sha256:[0-9a-f]{64}\b", (REQUIREMENTS / "torch-cpu.txt").read_text()
    )
    assert len(digests) == len(set(digests)) >= 2


@pytest.mark.parametrize("recipe", WITH_TORCH, ids=lambda recipe: recipe.name)
def test_lock_beside_torch_has_what_torch_needs_and_pins_nothing_otherwise(recipe):
    beside, cuda = pins(recipe.name), pins(TORCH_CUDA)
    assert _wanted(REQUIREMENTS / "torch-needs.txt") <= beside.keys()
    assert "torch" not in beside
    shared = beside.keys() & cuda.keys()
    assert {name: beside[name] for name in shared} == {name: cuda[name] for name in shared}


def test_libraries_of_torch_are_those_of_every_lock_that_holds_it():
    libraries = {name for name in pins(TORCH_CUDA) if name.startswith("nvidia-")} | {"triton"}
    assert len(libraries) > 10
    texts = {path: path.read_text() for path in ROOT.glob("**/*requirements*/*.txt")}
    whole = [path.stem for path, text in texts.items() if re.search(r"^torch==[\d.]+ ", text, re.M)]
    assert sorted(whole) == ["server-baseline-gpu", TORCH_CUDA, "vllm-gpu"]
    assert [
        name for name in whole if not libraries <= _pinned(texts[REQUIREMENTS / f"{name}.txt"])
    ] == []
