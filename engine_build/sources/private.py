"""The secret that opens private repositories of a hub, read when a source is fetched.

It is held in memory alone. The one place that talks to Secrets Manager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine_build.errors import SourceFault
from onboarding.source_access import SourceSecretsSpec

SecretReader = Callable[[str], str]
"""The text of a secret by its ARN; raises SourceFault."""
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
            raise SourceFault(
                f"the secret {secret.secret_arn} is no token; store the token alone, as plain text."
            )
        return token


PUBLIC = PrivateSources(spec=SourceSecretsSpec(), read=lambda arn: "")
"""No private place, so that nothing is read."""


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
