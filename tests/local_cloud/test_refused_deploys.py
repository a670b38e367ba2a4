"""Deployments that a reviewed plan or the trusted signers allow or refuse; everything real.

One deployment, and one test after the other.
"""

from __future__ import annotations

import base64
import io
import tarfile

import pytest

from onboarding import arns
from onboarding.signature import ENVELOPE_NAME
from roundhouse.deploy import deployment
from roundhouse.deploy.stacks import environment_templates
from roundhouse.errors import DeployFailedError
from roundhouse.gitops.compare import plan_against_deployed
from roundhouse.gitops.stale import review_of
from roundhouse.processes import Processes
from tests.fixtures.signer import Signer
from tests.local_cloud.tiny_session import (
    archive_bytes,
    deploy_all,
    lock_entry,
    sound_network,
    vector,
)

pytestmark = pytest.mark.local_cloud

CHANGED = {"local/Endpoint-tiny", "local/Observability"}


@pytest.fixture(scope="module", autouse=True)
def deployed(tiny):
    deploy_all(tiny.start())


def test_plan_is_deployed_as_it_was_reviewed_or_not_at_all(tiny):
    def plan():
        templates = environment_templates(session)
        (found,) = plan_against_deployed(tiny.paths, "local", templates, Processes()).environments
        return found

    def deploy(reviewed):
        review = review_of(reviewed)
        options = deployment.DeployOptions(yes=True, **review)
        return deployment.deploy(session, options).deployed.changed

    session = tiny.start()
    unchanged = plan()
    assert not unchanged.digests and unchanged.engines == ()

    tiny.write_model(sound_network(), endpoint="{instance_type: ml.c7i.large, scaling: {max: 3}}")
    reviewed = plan()
    (endpoint,) = reviewed.endpoints
    assert (endpoint.name, endpoint.outage) == ("tiny", False)
    assert [stack.name for stack in reviewed.stacks] == ["roundhouse-local-observability"]

    tiny.write_model(sound_network(), endpoint="{instance_type: ml.c7i.large, scaling: {max: 4}}")
    with pytest.raises(DeployFailedError, match=r"the files give stack .* another template"):
        deploy(reviewed)
    current = plan()
    assert current.id != reviewed.id
    assert set(deploy(current)) == CHANGED
    with pytest.raises(DeployFailedError, match="is deployed as planned already"):
        deploy(current)
    assert not plan().digests


def trust(tiny, key):
    """Names a key in the environment file, as `aws kms get-public-key` prints it."""
    path = tiny.paths.tree / "environments" / "local.yaml"
    lines = [line for line in path.read_text().splitlines() if "trusted_signers" not in line]
    path.write_text("\n".join([*lines, f"trusted_signers: [{key}]"]) + "\n")


def test_engine_is_served_by_who_trusts_its_signer_and_by_nobody_else(tiny):
    session = tiny.start()
    answer, entry = vector(session), lock_entry(tiny)
    with tarfile.open(fileobj=io.BytesIO(archive_bytes(session, entry))) as tar:
        envelope = tar.extractfile(ENVELOPE_NAME).read()
    assert entry.signature is not None and entry.signature.envelope() == envelope
    alias = arns.signing_key_alias(session.environment)
    public = session.clients("kms").get_public_key(KeyId=alias)["PublicKey"]
    trust(tiny, base64.b64encode(public).decode())
    session = tiny.start()
    assert "local/Endpoint-tiny" in deploy_all(session).deployed.changed
    assert vector(session) == answer
    trust(tiny, Signer().public)
    with pytest.raises(DeployFailedError, match="none of 'trusted_signers' signed engine"):
        deploy_all(tiny.start())
    assert vector(session) == answer
