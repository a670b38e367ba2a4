"""Notes on the models of a tree; the shipped ones have none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from onboarding.dataset_findings import implicit_int8_notes, profile_notes
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import tree_root

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("mode", "count"), [("calibration-cache", 1), ("explicit", 0)])
def test_calibration_cache_of_a_text_model_is_noted(tmp_path, mode, count):
    words = {"precision: auto": f"precision: auto\n  quantization: {mode}"}
    root = tree_root(tmp_path, {"models/example.yaml": words})
    notes = implicit_int8_notes(read_tree(root))
    assert len(notes) == count
    assert all("choose `quantization: explicit`" in note for note in notes)


@pytest.mark.parametrize(
    ("texts", "longest", "words"),
    [
        (["a " * 20, "a"], 22, None),
        (
            ["a " * 21, "a"],
            22,
            "1 of 2 texts of models/data/texts.txt have more (one has 21",
        ),
        (["a" * 30, "a"], 63, None),
        (["a" * 30, "a"], 64, "no text of models/data/texts.txt can have more than 32"),
        (["ä" * 30, "a"], 64, None),
    ],
)
def test_profile_that_the_texts_do_not_fit_is_noted(tmp_path, texts, longest, words):
    root = tree_root(tmp_path, {})
    model = next(iter(read_tree(root).models.values()))
    data = "models/data/texts.txt"
    (root / data).parent.mkdir(parents=True, exist_ok=True)
    (root / data).write_text("\n".join(texts), encoding="utf-8")
    path = root / f"models/{model.name}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["accuracy"]["dataset"] = data
    document["engine"]["optimization_profiles"] = [
        {"batch": [1, 1, 1], "sequence": [1, 8, 16]},
        {"batch": [1, 1, 1], "sequence": [1, 8, longest]},
    ]
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    notes = [note for note in profile_notes(read_tree(root)) if data in note]
    assert len(notes) == (words is not None)
    assert all(f"models/{model.name}.yaml: " in note and words in note for note in notes)
