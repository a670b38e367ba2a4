"""Private places of sources: the secrets that open them, read when a source is fetched.

A secret is held in memory, and for `pip` in a netrc file that lives as long as the download. The
one place that talks to Secrets Manager.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine_build.errors import SourceFault
from onboarding.source_access import SecretSpec, SourceSecretsSpec

SecretReader = Callable[[str], str]
"""The text of a secret by its ARN; raises SourceFault."""
NETRC = "netrc"
HINTS = {
    "AccessDeniedException": "the role of the builds may not read it: deploy the environment's "
    "stack of builds, and let the policies of the secret and of its key allow the role",
    "ResourceNotFoundException": "make the secret, or correct `source_secrets` in the environment "
    "file",
    "InvalidRequestException": "restore the secret if it is marked for deletion",
    "DecryptionFailure": "name the secret's key as `kms_key_arn`, and let the key's policy allow "
    "the role of the builds",
}
"""What helps, by the code of Secrets Manager's answer."""


@dataclass(frozen=True, kw_only=True)
class PrivateSources:
    """What an environment says of private sources, and the reader of its secrets."""

    spec: SourceSecretsSpec
    read: SecretReader = field(repr=False)

    def huggingface_token(self) -> str | None:
        """Return the token; None where the environment names no secret. Raises SourceFault."""
        secret = self.spec.huggingface
        if secret is None:
            return None
        token = self.read(secret.secret_arn).strip()
        if not token or not token.isascii() or any(map(str.isspace, token)):
            raise _unusable(secret, "is no token", "store the token alone, as plain text")
        return token

    @contextmanager
    def package_index(self, folder: Path) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
        """Give pip's options and variables for as long as a download lasts.

        The password stands in a netrc file of `folder` that nobody else may read. Raises
        SourceFault.
        """
        index = self.spec.package_index
        if index is None:
            yield (), {}
            return
        options = ("--index-url", index.url, "--no-input")
        if index.credentials is None:
            yield options, {}
            return
        user, password = _user_and_password(index.credentials, self.read)
        path = folder / NETRC
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                host = urlsplit(index.url).hostname
                file.write(f"machine {host}\nlogin {user}\npassword {password}\n")
            yield options, {"NETRC": str(path)}
        finally:
            path.unlink(missing_ok=True)


PUBLIC = PrivateSources(spec=SourceSecretsSpec(), read=lambda arn: "")
"""No private place, so that nothing is read."""


def _user_and_password(secret: SecretSpec, read: SecretReader) -> tuple[str, str]:
    way_out = 'store {"username": "...", "password": "..."}, each without spaces'
    try:
        given = json.loads(read(secret.secret_arn))
        user, password = given["username"], given["password"]
    except (ValueError, KeyError, TypeError):
        # Without the cause, which quotes the secret.
        raise _unusable(secret, "holds no username and password", way_out) from None
    for text in (user, password):
        if not isinstance(text, str) or not text or any(char in ' \t\r\n"\\#' for char in text):
            raise _unusable(secret, "holds what a netrc file cannot", way_out)
    return user, password


def _unusable(secret: SecretSpec, fault: str, way_out: str) -> SourceFault:
    return SourceFault(f"the secret {secret.secret_arn} {fault}; {way_out}.")


def secret_reader(region: str, client: Any = None) -> SecretReader:
    """Return a reader of Secrets Manager; boto3 finds credentials and AWS_ENDPOINT_URL."""

    def read(arn: str) -> str:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        config = Config(
            connect_timeout=10, read_timeout=30, retries={"max_attempts": 3, "mode": "standard"}
        )
        try:
            service = client or boto3.client("secretsmanager", region_name=region, config=config)
            text = service.get_secret_value(SecretId=arn).get("SecretString")
        except ClientError as error:
            answer = error.response.get("Error", {})
            code = answer.get("Code", "an error")
            hint = HINTS.get(code, "run the build again when Secrets Manager answers")
            refusal = f"{code} ({answer.get('Message', 'without a message')})"
            raise SourceFault(f"the secret {arn} cannot be read: {refusal}; {hint}.") from None
        except BotoCoreError as error:
            raise SourceFault(
                f"the secret {arn} cannot be read ({error}); give this machine credentials and a "
                "way to Secrets Manager."
            ) from error
        if text is None:
            raise SourceFault(f"the secret {arn} holds bytes; store it as text.")
        return str(text)

    return read
