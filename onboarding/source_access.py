"""What builds may read sources from: buckets of others, and private repositories of a hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from onboarding.values import Value

S3_SCHEME = "s3://"
MOST_SOURCE_BUCKETS = 20
"""Each is up to three statements of roles, whose inline policies hold 10,240 characters."""


class SourceBucketSpec(Value):
    """A bucket, or a part of one, that builds read ONNX files and checkpoints from."""

    bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] = Field(
        description="Name of the bucket, in the environment's region"
    )
    prefix: Annotated[str, Field(pattern=r"^([A-Za-z0-9_.=-]+/)*$", max_length=900)] = Field(
        "", description="Read what lies under it alone, such as models/; default: the whole bucket"
    )
    kms_key_arn: (
        Annotated[str, Field(pattern=r"^arn:[\w-]+:kms:[\w-]+:[0-9]{12}:key/[\w-]+$")] | None
    ) = Field(
        None,
        description="Customer key that encrypts the objects; default: S3's own encryption. The "
        "key's policy must allow the environment's account",
    )
    account: Annotated[str, Field(pattern=r"^[0-9]{12}$")] | None = Field(
        None,
        description="Account that the bucket must belong to, twelve digits in quotes; default: "
        "whichever has it",
    )

    @property
    def address(self) -> str:
        """The address that every source of it begins with."""
        return f"{S3_SCHEME}{self.bucket}/{self.prefix}"


def split_s3(address: str) -> tuple[str, str]:
    """Return bucket and key of an s3:// address."""
    bucket, _, key = address.removeprefix(S3_SCHEME).partition("/")
    return bucket, key


class SecretSpec(Value):
    """A secret that builds read when they fetch a source; never a value, always an ARN."""

    secret_arn: Annotated[
        str, Field(pattern=r"^arn:[\w-]+:secretsmanager:[\w-]+:[0-9]{12}:secret:[\w/+=.@-]+$")
    ] = Field(
        description="Secret of AWS Secrets Manager, by its whole ARN with the six characters at "
        "the end"
    )
    kms_key_arn: (
        Annotated[str, Field(pattern=r"^arn:[\w-]+:kms:[\w-]+:[0-9]{12}:key/[\w-]+$")] | None
    ) = Field(
        None,
        description="Customer key that encrypts the secret; default: aws/secretsmanager, which "
        "other accounts cannot use",
    )


class SourceSecretsSpec(Value):
    """Private places of sources, and the secrets that open them."""

    huggingface: SecretSpec | None = Field(
        None, description="Secret whose text is a Hugging Face token that may read the repositories"
    )

    @property
    def secrets(self) -> Mapping[str, SecretSpec]:
        """The secrets by their key."""
        return {} if self.huggingface is None else {"huggingface": self.huggingface}
