"""What `roundhouse deploy` does for a text generator's endpoint beside the cdk command line."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.text_generation.checkpoint_record import record_sha256
from roundhouse.deploy.endpoint_steps import retention_parameters
from roundhouse.deploy.verification import checkpoint_fault
from tests.fixtures.signer import Signer
from tests.synth.generation_cases import FIXED, SCALED, generator, knee, template

pytestmark = pytest.mark.unit

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


def test_refuses_a_checkpoint_that_nobody_trusted_signed(generation):
    trusted = {"trusted_signers": (Signer().public,)}
    environment = generation.environment.model_copy(update=trusted)
    trusting = dataclasses.replace(generation, environment=environment)
    fault = checkpoint_fault(trusting, generation.entry, object_sizes(generation))
    assert "none of 'trusted_signers' signed checkpoint" in fault
    assert "its lock entry holds no signature" in fault


def test_checkpoint_that_a_trusted_signer_signed_has_no_fault(generation):
    signer, sizes = Signer(), object_sizes(generation)
    trusted = {"trusted_signers": (signer.public,)}
    environment = generation.environment.model_copy(update=trusted)
    digest = record_sha256(generation.entry)
    for signed, fault in ((signer.sign_record(digest), None), (signer.sign_record("e" * 64), "")):
        entry = generation.entry.model_copy(update={"signature": signed})
        trusting = dataclasses.replace(generation, environment=environment, entry=entry)
        found = checkpoint_fault(trusting, entry, sizes)
        assert (found is None) == (fault is None)
