"""The public key that the engines of an environment are signed with."""

from __future__ import annotations

import base64

from onboarding.signature import PublicKey
from roundhouse.aws.clients import calling
from roundhouse.errors import NotReadyError
from roundhouse.session import Session


def signing_key(session: Session) -> PublicKey:
    """Return the key of the foundation stack, by its alias. Raises NotReadyError."""
    from botocore.exceptions import ClientError

    from stacks.access.arns import signing_key_alias

    alias, name = signing_key_alias(session.environment), session.environment.name
    with calling(f"Reading the public key of {alias}"):
        try:
            return PublicKey(session.clients("kms").get_public_key(KeyId=alias)["PublicKey"])
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "NotFoundException":
                raise
            raise NotReadyError(
                f"{alias}: is not there yet; `roundhouse deploy --env {name}` makes it, then "
                "builds, signs and deploys what is missing."
            ) from error


def key_text(key: PublicKey) -> str:
    """Return a key as `trusted_signers` names it."""
    return base64.b64encode(key.der).decode()
