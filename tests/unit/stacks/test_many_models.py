"""Trees of many models, which other tests start from: no fault, deployable, with true locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_cloud.containers.archive import unpack_model
from onboarding.lock import lock_path
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.verification import lock_fault
from stacks.endpoint.template import endpoint_faults
from tests.fixtures.many_models import many_models
from tests.fixtures.trees import PYTHON_SERVER
from tests.fixtures.unbuilt_archives import archive, archived_entry

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
LOCAL = {"serving": PYTHON_SERVER, "endpoint": {"instance_type": "ml.c7i.large"}}


@pytest.mark.parametrize(("environment", "changes"), [("dev", {}), ("local", LOCAL)])
def test_generated_tree_has_no_fault_and_every_endpoint_can_be_deployed(
    tmp_path, environment, changes
):
    many = many_models(ROOT, tmp_path / "tree", 12, environment=environment, changes=changes)
    tree = read_tree(many.root)
    assert tree.faults == () and list(tree.environments) == [environment]
    results = deployments(tree, environment)
    assert [result.name for result in results] == [f"model-{number:03d}" for number in range(1, 13)]
    assert [fault for result in results for fault in endpoint_faults(result)] == []
    assert len({target.engine_key for result in results for target in result.targets}) == 12


def test_a_change_gives_one_model_another_engine_with_a_true_lock(tmp_path):
    many = many_models(
        ROOT, tmp_path / "tree", 3, environment="local", changes=LOCAL, built=archived_entry
    )
    before = {item.name: item for item in deployments(read_tree(many.root), "local")}
    many.change("model-002", {"accuracy": {"budget": {"worst": 0.94}}})
    after = {item.name: item for item in deployments(read_tree(many.root), "local")}
    assert [name for name in before if after[name] != before[name]] == ["model-002"]
    (old,), (target,) = before["model-002"].targets, after["model-002"].targets
    assert target.engine_key != old.engine_key and after["model-002"].missing == ()
    lock = lock_path(many.root / "build/local/locks", target.model.name)
    assert len(lock.read_text().splitlines()) > 250
    assert lock_fault(after["model-002"], target, target.lock_entry) is None
    unpack_model(archive(target), tmp_path / "model", "here")
    assert (tmp_path / "model" / "engine").read_text() == target.engine_key
