"""Repositories of the Hugging Face hub: the files of a pinned commit, or why they are refused.

The secret that opens a private one is read when a source is fetched, and held in memory alone: the
one place that talks to Secrets Manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_build.errors import SourceFault, one_line
from engine_build.sources.wheel import DISK_FULL
from onboarding.source_access import SourceSecretsSpec

NO_TOKEN = (
    "name a secret with a token that may read it as `source_secrets.huggingface` in the "
    "environment file, or set HF_TOKEN"
)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository at one commit, as a model file pins it: owner/name@commit."""

    pin: str
    token: str | None
    """None: huggingface_hub looks for HF_TOKEN."""
    endpoint: str | None = None
    """Another one than huggingface_hub itself uses."""

    def download(self, patterns: Iterable[str], folder: Path) -> None:
        """Download the files that match a pattern. Raises SourceFault."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        name, _, commit = self.pin.partition("@")
        try:
            snapshot_download(
                name,
                revision=commit,
                local_dir=str(folder),
                allow_patterns=list(patterns),
                endpoint=self.endpoint,
                token=self.token,
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            raise self._fault(error) from error

    def file_names(self) -> tuple[str, ...]:
        """Return the paths of every file. Raises SourceFault."""
        from huggingface_hub import HfApi

        name, _, commit = self.pin.partition("@")
        try:
            api = HfApi(endpoint=self.endpoint, token=self.token)
            return tuple(api.list_repo_files(name, revision=commit))
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> SourceFault:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        if isinstance(error, RepositoryNotFoundError):
            has_token = "Authorization" in error.response.request.headers
            if isinstance(error, GatedRepoError):
                way_out = "ask for access with the token's account" if has_token else NO_TOKEN
                return SourceFault(f"{self.pin} is gated; {way_out}.")
            reason, way_out = "it is private, gated or not there", NO_TOKEN
            if has_token:
                reason, way_out = (
                    "the token may not read it, or it is not there",
                    "give one that may",
                )
            return SourceFault(
                f"{self.pin} cannot be fetched: {reason}; {way_out}, or correct the name."
            )
        return SourceFault(
            f"{self.pin} cannot be fetched ({one_line(error)}); check repository and commit, and "
            "that this machine reaches it."
        )


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
