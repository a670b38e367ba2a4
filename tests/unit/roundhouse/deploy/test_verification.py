"""What is refused before anything is deployed."""

from __future__ import annotations

import re

import pytest

from onboarding.manifest import RuntimeIdentity
from roundhouse.deploy.verification import archive_fault, lock_fault
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments

TENSORRT = RuntimeIdentity(name="tensorrt", version="10.16.1.11")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    deployment = local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]
    return deployment, deployment.targets[0]


def test_a_fitting_engine_has_no_fault(pair):
    entry = entry_for(*pair)
    assert lock_fault(*pair, entry) is None
    assert archive_fault(*pair, entry, entry.archive.sha256) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine_key": "f" * 20}, "the model file needs"),
        ({"compute_capability": "8.6"}, "made for compute capability 8.6, ml.c7i.large has cpu"),
        ({"gpu": "L4"}, "made for GPU model L4, ml.c7i.large needs any"),
        ({"runtime": TENSORRT}, "made by tensorrt 10.16.1.11, the endpoint runs onnxruntime"),
    ],
)
def test_refuses_an_engine_made_for_something_else(pair, change, message):
    fault = lock_fault(*pair, entry_for(*pair, **change))
    assert message in fault
    assert "roundhouse build --env local --model sentence-embedder" in fault


def test_refuses_a_lock_edited_by_hand(pair):
    entry = entry_for(*pair)
    edited = entry.model_copy(
        update={"manifest": entry.manifest.model_copy(update={"load_seconds": 0.0})}
    )
    assert "edited by hand" in lock_fault(*pair, edited)


def test_refuses_an_archive_with_other_bytes(pair):
    entry = entry_for(*pair)
    fault = archive_fault(*pair, entry, "b" * 64)
    folder = rf"delete s3://roundhouse-local-\S+/engines/{entry.manifest.engine_key}/ whole"
    assert "do not deploy it" in fault and re.search(folder, fault) is not None


def test_refuses_an_archive_that_is_gone(pair):
    fault = archive_fault(*pair, entry_for(*pair), None)
    assert "is not there" in fault
    assert "roundhouse build" in fault
