"""The key that an environment signs with, as its file names it."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from onboarding.signature import parse_public_key
from roundhouse.deploy.verification import key_text, signing_key
from roundhouse.errors import NotReadyError
from tests.fixtures.signer import Signer
from tests.synth.deployments import environment

pytestmark = pytest.mark.unit


def session(get_public_key):
    """A session of dev with a KMS that answers by a function."""
    kms = SimpleNamespace(get_public_key=get_public_key)
    return SimpleNamespace(environment=environment("dev"), clients=lambda service: kms)


def test_key_is_read_by_its_alias_and_named_as_it_is_trusted():
    public, aliases = Signer().public, []

    def get_public_key(*, KeyId):
        aliases.append(KeyId)
        return {"PublicKey": base64.b64decode(public)}

    key = signing_key(session(get_public_key))
    assert (aliases, key_text(key)) == (["alias/roundhouse-dev-signing"], public)
    assert parse_public_key(key_text(key)) == key


def test_refuses_an_environment_that_has_no_key_yet():
    def get_public_key(*, KeyId):
        raise ClientError({"Error": {"Code": "NotFoundException", "Message": "no"}}, "GetPublicKey")

    words = "alias/roundhouse-dev-signing: is not there yet; `roundhouse deploy --env dev` makes it"
    with pytest.raises(NotReadyError, match=words):
        signing_key(session(get_public_key))
