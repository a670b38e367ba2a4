"""What a plan says of an ensemble whose models change."""

from __future__ import annotations

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.gitops.engine_changes import engine_changes
from roundhouse.promoted_tree import model_files
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.unit
PAIR = """\
name: pair
task: ensemble
steps:
  - {model: example}
  - {model: joiner}
outputs: [scores]
accuracy: {dataset: models/data/validation.txt}
endpoint: {instance_type: ml.g5.xlarge}
"""


def changes(tmp_path, edits):
    trees = []
    for name, more in (("before", {}), ("after", edits)):
        (tmp_path / name).mkdir()
        files = {"models/pair.yaml": PAIR, **more}
        trees.append(read_tree(tree_root(tmp_path / name, files)))
    base, head = trees
    assert base.faults == () == head.faults
    found = [{item.name: item for item in deployments(tree, "cloud")} for tree in trees]
    return {item.model: item for item in engine_changes(base, head, *found)}


def test_model_that_changes_is_the_cause_of_the_ensembles_build(tmp_path):
    found = changes(tmp_path, {"models/joiner.yaml": {"[1, 1, 1]": "[1, 1, 2]"}})
    assert [(cause.path, cause.file) for cause in found["pair"].because] == [
        ("engine", "models/joiner.yaml")
    ]
    # Of the ensemble's instance type, and of the model's own endpoint.
    assert found["joiner"].because[0].path.startswith("engine.optimization_profiles")


def test_composition_that_changes_builds_the_ensemble_alone(tmp_path):
    wider = PAIR.replace("accuracy:", "serving: {dynamic_batching: {max_batch_size: 1}}\naccuracy:")
    found = changes(tmp_path, {"models/pair.yaml": wider})
    assert set(found) == {"pair", "example", "joiner"}  # nothing is built yet
    assert [cause.path for cause in found["pair"].because] == ["serving"]
    assert not found["example"].because and not found["joiner"].because


def test_promotion_takes_what_an_ensembles_models_follow_from(tmp_path):
    tree = read_tree(tree_root(tmp_path, {"models/pair.yaml": PAIR}))
    files = set(model_files(tree, "pair"))
    assert {f"models/{name}.yaml" for name in ("pair", "example", "joiner")} <= files
    assert {"models/data/joiner.onnx", "models/data/calibration.txt"} <= files
