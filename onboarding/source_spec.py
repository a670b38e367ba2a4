"""The spec of a model's source: where its network comes from, and how texts become vectors."""

from __future__ import annotations

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


class SourceSpec(Value):
    """Where the network comes from; exactly one of the four kinds, and always pinned."""

    python_package: str | None = Field(None, description="PyPI package: name==1.2.3")
    huggingface: str | None = Field(
        None, description="Hugging Face repository at a full commit: owner/name@<40 hex digits>"
    )
    checkpoint: str | None = Field(None, description="Checkpoint folder under the onboarding root")
    onnx: str | None = Field(
        None, description="ONNX file: an s3:// URI, or a path relative to the onboarding root"
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
