"""What is refused before anything is deployed: engines and checkpoints that are not as locked."""

from __future__ import annotations

import dataclasses
import re

import pytest

from onboarding.manifest import RuntimeIdentity
from roundhouse.deploy.endpoint_steps import retention_parameters
from roundhouse.deploy.verification import archive_fault, checkpoint_fault, lock_fault
from tests.fixtures.signer import Signer
from tests.synth.generation_cases import FIXED, SCALED, generator, knee, template
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
        ({"engine_key": "f" * 20}, f"has key {'f' * 20}, and"),
        (
            {"compute_capability": "8.6"},
            "has compute capability 8.6, and cpu is needed on ml.c7i.large",
        ),
        ({"gpu": "L4"}, "has GPU model L4, and any is needed"),
        ({"runtime": TENSORRT}, "has runtime tensorrt 10.16.1.11, and onnxruntime"),
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


STACK = "roundhouse-cloud-endpoint-chat"


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def object_sizes(deployment):
    entry = deployment.entry
    return {f"{entry.prefix}{file.path}": file.size_bytes for file in entry.files}


def test_a_changed_component_keeps_the_copies_that_it_has(generation):
    measured = generator(**SCALED, entry={"knee": knee(10, generation.candidate.instance_type)},
                         serving={"max_num_queued_reqs": None})  # fmt: skip
    before, after = template(generation), template(measured)
    assert retention_parameters({STACK: before}, {STACK: after}) == (
        f"{STACK}:RetainCopyCount=true",
    )
    assert retention_parameters({}, {STACK: after}) == ()
    assert retention_parameters({STACK: before}, {STACK: before}) == ()
    fixed = template(generator(**FIXED))
    assert retention_parameters({STACK: before}, {STACK: fixed}) == ()


def test_checkpoint_as_its_lock_says_has_no_fault(generation):
    assert checkpoint_fault(generation, generation.entry, object_sizes(generation)) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda files, prefix: files.pop(f"{prefix}config.json"), "config.json of 'chat' is not"),
        (lambda files, prefix: files.update({f"{prefix}config.json": 1}), "has 1 bytes, not 100"),
        (lambda files, prefix: files.update({f"{prefix}code/model.py": 9}), "holds code/model.py"),
    ],
)
def test_refuses_a_checkpoint_that_is_not_as_its_lock_says(generation, change, fault):
    files = object_sizes(generation)
    change(files, generation.entry.prefix)
    assert fault in checkpoint_fault(generation, generation.entry, files)


def test_checkpoint_that_a_trusted_signer_signed_has_no_fault(generation):
    signer = Signer()
    trusted = {"trusted_signers": (signer.public,)}
    environment = generation.environment.model_copy(update=trusted)
    digest = generation.entry.signed_sha256
    for signed, count in ((signer.sign_record(digest), 0), (signer.sign_record("e" * 64), 1)):
        entry = generation.entry.model_copy(update={"signature": signed})
        trusting = dataclasses.replace(generation, environment=environment, entry=entry)
        assert len(list(trusting.signature_faults())) == count
