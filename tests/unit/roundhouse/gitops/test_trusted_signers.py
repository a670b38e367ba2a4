"""Engines that no trusted signer signed are refused by check, plan, deploy and promote.

The environment that receives decides.
"""

from __future__ import annotations

import functools

import pytest

from onboarding.lock import read_lock, write_lock_entry
from onboarding.memory import memory_findings
from onboarding.promotion import read_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.verification import verify
from roundhouse.errors import DeployFailedError
from tests.fixtures.signer import Signer
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.gitops.rungs import BUCKETS, MODELS


@functools.cache
def signer() -> Signer:
    return Signer()


def trust(rungs, environment="prod", key=None):
    """Name the one trusted signer of an environment."""
    path = rungs.root / "environments" / f"{environment}.yaml"
    with path.open("a") as file:
        file.write(f"trusted_signers: [{key or signer().public}]\n")
    rungs.repository.commit("trust")


def sign(rungs, *models, **changes):
    """Sign the locked engines of models; `changes` replace fields of their entries then."""
    for model in models:
        for entry in read_lock(rungs.root / "models", model).engines.values():
            signed = signer().sign_manifest(entry.archive.manifest_sha256)
            entry = entry.model_copy(update={"signature": signed, **changes})
            write_lock_entry(rungs.root / "models", model, entry)
    rungs.repository.commit("signatures")


def faults(rungs):
    return list(map(str, memory_findings(read_tree(rungs.root)).faults))


def deploy_session(rungs, environment):
    """A session that verifies; its S3 has what dev published."""
    return session_of(rungs.root, {"s3": rungs.s3}.__getitem__, environment)


def test_promotion_of_engines_that_nobody_signed_copies_nothing(rungs):
    trust(rungs)
    sign(rungs, MODELS[0])
    with pytest.raises(DeployFailedError) as caught:
        rungs.promote()
    (line,) = [line for line in str(caught.value).splitlines() if "signed engine" in line]
    assert f"of '{MODELS[1]}': its lock entry holds no signature" in line
    assert f"`roundhouse build --env dev --model {MODELS[1]}`, which signs it." in line
    assert rungs.s3.buckets[BUCKETS["prod"]] == {}
    assert read_promotion(rungs.root, "prod") is None


def test_check_names_every_engine_and_what_is_wrong_with_its_signature(rungs):
    trust(rungs)
    assert [fault.partition(":")[0] for fault in faults(rungs)] == ["environments/prod.yaml"] * 2
    sign(rungs, MODELS[0])
    (fault,) = faults(rungs)
    assert f"of '{MODELS[1]}': its lock entry holds no signature; name its signer" in fault
    stranger = Signer().sign_manifest("0" * 64)
    sign(rungs, MODELS[1], signature=stranger)
    assert "which is none of the 1 trusted signers" in faults(rungs)[0]
    sign(rungs, MODELS[1], signature=signer().sign_manifest("0" * 64))
    assert "it signs a manifest.json of sha256 000000000000…" in faults(rungs)[0]


def test_plan_shows_what_a_deployment_would_refuse(rungs):
    rungs.repository.edit("environments/dev.yaml", {"trusted_signers": [signer().public]})
    change = rungs.repository.plan().environments[0]
    assert [endpoint.name for endpoint in change.endpoints] == list(MODELS)
    for endpoint in change.endpoints:
        assert "its lock entry holds no signature" in endpoint.faults[0]
        assert {item.id for item in endpoint.resources} >= {"Model", "EndpointConfig"}
    sign(rungs, *MODELS)
    assert not any(item.faults for item in rungs.repository.plan().environments[0].endpoints)


def test_deploy_refuses_before_it_reads_an_archive(rungs):
    trust(rungs, "dev")
    session = deploy_session(rungs, "dev")
    with pytest.raises(DeployFailedError, match=r"^Refused before deploying: environments/dev\."):
        verify(session, session.deployments())
    sign(rungs, *MODELS)
    endpoints = deployments(read_tree(rungs.root), "dev")
    for store in rungs.s3.buckets.values():
        store.clear()
    with pytest.raises(DeployFailedError, match="is not there"):  # the next thing that it checks
        verify(session, endpoints)
