"""A plan shows which endpoints another version of the code rolls, and which stay with an image."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roundhouse.gitops.compare import plan_against_git
from roundhouse.gitops.plan_text import image_changes, notes
from roundhouse.processes import Processes
from stacks.images import read_image_files
from tests.unit.roundhouse.gitops.repository import ROOT

pytestmark = pytest.mark.unit

CODE = "requirements/server.txt"
PIN = "0" * 20
SYNTH = (
    "cdk.json",
    "engine_build/buildspec.yml",
    "engine_build/checkpoint_buildspec.yml",
    "engine_build/checkpoint_signer.py",
    "engine_build/image/buildspec.yml",
    "engine_build/signer.py",
    "engine_build/signing.py",
)


@pytest.fixture
def planned(repository):
    """Plans of `dev` where the repository holds the code of the images too."""
    code = {path for files in read_image_files(ROOT).values() for path in files}
    for path in (*code, *SYNTH):
        (repository.root / path).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / path).write_bytes((ROOT / path).read_bytes())
    repository.commit()
    paths = replace(repository.paths, code=repository.root, build=repository.root / "build")

    def plan():
        (environment,) = plan_against_git(paths, None, (), Processes()).environments
        return environment

    return plan


def change_code(repository):
    file = repository.root / CODE
    file.write_text(file.read_text() + "# another version\n")


def test_code_that_changes_an_image_rolls_its_endpoints(repository, planned):
    assert not planned().has_changes
    change_code(repository)
    plan = planned()
    assert {item.name for item in plan.endpoints} == {"model-001", "model-002"}
    for item in plan.endpoints:
        ((before, after),) = image_changes(item)
        assert before != after and item.rollout is not None
    (note,) = (line for line in notes(plan) if line.startswith("Another serving image"))
    assert all(f"{item.name}: triton:" in note for item in plan.endpoints)
    repository.commit()
    assert not planned().has_changes


def test_pinned_image_stays_and_an_exception_takes_the_codes_own(repository, planned):
    pinned = {"triton": {"tag": PIN, "platform": "triton-26.05"}}
    repository.edit("environments/dev.yaml", {"images": {"pinned": pinned}})
    repository.commit()
    change_code(repository)
    assert planned().endpoints == ()
    repository.edit("environments/dev.yaml", {"images": {"except": ["model-001"]}})
    (endpoint,) = planned().endpoints
    ((before, after),) = image_changes(endpoint)
    assert (endpoint.name, before) == ("model-001", f"triton:{PIN}") and after != before
