"""Notes on narrow datasets of a tree; the shipped sets have none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from onboarding.dataset_findings import dataset_notes, implicit_int8_notes, profile_notes
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "models" / "data"


def test_shipped_sets_cover_each_other():
    tree = read_tree(ROOT)
    assert dataset_notes(tree) == () and profile_notes(tree) == ()


def test_narrow_calibration_set_is_noted_and_is_no_fault(tmp_path):
    mixed = (DATA / "validation-sentences.txt").read_text(encoding="utf-8")
    long = [line for line in mixed.splitlines() if len(line) > 60 and line.isascii()]
    root = tree_root(tmp_path, {})
    model = next(iter(read_tree(root).models.values()))
    calibration = model.engine.calibration
    assert calibration is not None
    (root / calibration.dataset).write_text("\n".join(f"{line} 1" for line in long * 3))
    (root / model.accuracy.dataset).write_text(mixed, encoding="utf-8")
    tree = read_tree(root)
    (note, *_) = dataset_notes(tree)
    assert tree.faults == ()
    assert note.startswith(f"{calibration.dataset}, first ")
    assert "texts of 1 to 15 characters: 0.0% here" in note


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
