"""Some endpoints are what they are among all, whatever is wrong with other locks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onboarding.fault import FaultsError
from onboarding.resolve import deployments
from onboarding.tree import read_tree

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path):
    for folder in ("models", "endpoints", "environments"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def test_some_endpoints_are_as_they_are_among_all(root):
    tree = read_tree(root)
    every = {deployment.name: deployment for deployment in deployments(tree, "dev")}
    assert set(every) == {"sentence-embedder", "text-shared"}
    for name, deployment in every.items():
        assert deployments(tree, "dev", (name,)) == (deployment,)
    assert deployments(tree, "dev", tuple(reversed(every))) == tuple(every.values())


def test_locks_of_other_endpoints_are_not_read(root):
    (root / "models" / "sentence-embedder-fp32.lock.yaml").write_text("no lock\n")
    tree = read_tree(root)
    assert [deployment.name for deployment in deployments(tree, "dev", ("sentence-embedder",))] == [
        "sentence-embedder"
    ]
    with pytest.raises(FaultsError, match=r"sentence-embedder-fp32\.lock\.yaml"):
        deployments(tree, "dev", ("text-shared",))


def test_refuses_an_unknown_endpoint_and_names_the_nearest(root):
    with pytest.raises(FaultsError) as refused:
        deployments(read_tree(root), "dev", ("sentence-embeder", "text-shared"))
    assert str(refused.value) == (
        "models: unknown endpoint, given sentence-embeder; allowed: sentence-embedder, "
        "text-shared; "
        "did you mean 'sentence-embedder'?"
    )


def test_refuses_a_shared_endpoint_that_no_model_joins(root):
    (root / "environments" / "local.yaml").unlink()
    (root / "endpoints" / "alone.yaml").write_text(
        (root / "endpoints" / "text-shared.yaml")
        .read_text()
        .replace("name: text-shared", "name: alone")
    )
    tree = read_tree(root)
    assert "alone" not in [deployment.name for deployment in deployments(tree, "dev")]
    with pytest.raises(FaultsError, match="unknown endpoint, given alone"):
        deployments(tree, "dev", ("alone",))
