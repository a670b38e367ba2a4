"""An environment that trusts its own key: the engine is signed, deployed, verified, and answers."""

from __future__ import annotations

import io
import tarfile

import pytest

from onboarding.signature import ENVELOPE_NAME
from roundhouse.deploy.signing import key_text, signing_key
from roundhouse.errors import DeployFailedError
from tests.fixtures.signer import Signer
from tests.local_cloud.tiny_session import (
    archive_bytes,
    deploy_all,
    lock_entry,
    session_at,
    vector,
)

pytestmark = pytest.mark.local_cloud


def trust(tiny, key):
    """Names a key in the environment file, as `roundhouse signers` prints it."""
    path = tiny.paths.tree / "environments" / "local.yaml"
    lines = [line for line in path.read_text().splitlines() if "trusted_signers" not in line]
    path.write_text("\n".join([*lines, f"trusted_signers: [{key}]"]) + "\n")


def test_engine_is_served_by_who_trusts_its_signer_and_by_nobody_else(tmp_path):
    with session_at(tmp_path) as tiny:
        session = tiny.start()
        deploy_all(session)
        answer, entry = vector(session), lock_entry(tiny)
        with tarfile.open(fileobj=io.BytesIO(archive_bytes(session, entry))) as tar:
            envelope = tar.extractfile(ENVELOPE_NAME).read()
        assert entry.signature is not None and entry.signature.envelope() == envelope
        trust(tiny, key_text(signing_key(session)))
        session = tiny.start()
        assert "local/Endpoint-tiny" in deploy_all(session).deployed.changed
        assert vector(session) == answer
        trust(tiny, Signer().public)
        with pytest.raises(DeployFailedError, match="none of 'trusted_signers' signed engine"):
            deploy_all(tiny.start())
        assert vector(session) == answer
