"""The specs of model files, `models/<name>.yaml`, that engines are built of, and of endpoints.

Of one network, of an ensemble of several, whose tensors Triton passes from one to the next, and of
a Triton model repository of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from onboarding.aws_limits import ASYNCHRONOUS_SECONDS, INSTANCE_POOL_COUNT, NAME_PATTERN
from onboarding.hosting_spec import (
    AsynchronousSpec,
    DataCaptureSpec,
    InstancePoolSpec,
    MetricsSpec,
    ScalingSpec,
)
from onboarding.serving_spec import PositiveInt, ServingSpec
from onboarding.source_spec import SourceSpec, TritonRepositorySpec
from onboarding.values import (
    EXPORT_OPSET,
    JOINED,
    LARGEST_EXPORT_OPSET,
    LEAST_EXPORT_OPSET,
    LEAST_INT8_OPSET,
    OWN,
    SHARED,
    CalibrationMethod,
    HardwareCompatibility,
    Metric,
    QuantizationMode,
    RequestedPrecision,
    Role,
    Rollout,
    Server,
    Sparsity,
    Task,
    Value,
)


class PluginSpec(Value):
    """A library of custom operators; it registers their creators when it is loaded."""

    file: Annotated[str, Field(pattern=r"^(.*/)?[A-Za-z0-9_][A-Za-z0-9_.+-]*\.so(\.[0-9]+)*$")] = (
        Field(description="Shared library: an s3:// URI, or a path relative to the onboarding root")
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the library, as `sha256sum` prints it"
    )
    operators: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...] = Field(
        min_length=1,
        description="Operators of the network that it computes; each is a function in the ONNX "
        "file too, by which it is judged",
    )

    @property
    def name(self) -> str:
        """The file's name, under which the archive carries it."""
        return PurePosixPath(self.file).name


Weight = Annotated[float, Field(ge=0, le=1000)]
Share = Annotated[float, Field(gt=0, le=1)]
Sizes = tuple[PositiveInt, PositiveInt, PositiveInt]
DATASET = (
    "Dataset under the onboarding root: .txt (a text a line), .tsv (label, tab, text; for "
    "text-ranking query, tab, text), .npz (arrays by input name), or for image-classification a "
    "folder of .jpg and .png files, in a folder for each label where they have labels"
)


class OptimizationProfileSpec(Value):
    """Input sizes one engine serves: (min, opt, max) of each dynamic axis."""

    batch: Sizes = Field(description="Rows of a batch: min, opt, max")
    sequence: Sizes | None = Field(None, description="Tokens of a row; text tasks need it")


class CalibrationSpec(Value):
    """The samples that set INT8 ranges."""

    dataset: str = Field(description=DATASET)
    samples: PositiveInt = Field(256, description="Samples used, from the first one on")
    method: CalibrationMethod = Field(
        "entropy", description="How an INT8 range follows from values; FP8's is the maximum"
    )


class SensitivitySearchSpec(Value):
    """Samples that measure each layer's cost in INT8; not those of calibration or validation."""

    dataset: str = Field(description=DATASET)
    samples: PositiveInt = Field(128, description="Samples used, from the first one on")


class EngineSpec(Value):
    """What is compiled."""

    precision: RequestedPrecision = Field(
        "auto",
        description="auto: int8, or fp8 on GPUs that compute in it, where it is faster and within "
        "the accuracy budget, else fp16 (fp32 on CPU); the lock says why",
    )
    optimization_profiles: tuple[OptimizationProfileSpec, ...] = Field(
        min_length=1, description="Input sizes the engine serves"
    )
    calibration: CalibrationSpec | None = Field(
        None,
        description="Samples that set INT8 and FP8 ranges; int8 and fp8 need them, auto tries "
        "eight bits only with them. None for a source that holds Q/DQ nodes already",
    )
    sensitivity_search: SensitivitySearchSpec | None = Field(
        None,
        description="Puts as many layers into INT8 as the accuracy budget allows; default: "
        "every layer but those behind an activation function",
    )
    quantization: QuantizationMode | None = Field(None, description="Default: the platform's mode")
    workspace_mib: PositiveInt | None = Field(
        None, description="Most memory the compiler may use for one layer; default: all there is"
    )
    optimization_level: Annotated[int, Field(ge=0, le=5)] | None = Field(
        None,
        description="How long TensorRT looks for faster kernels, 0 to 5; default: TensorRT's "
        "own, 3",
    )
    hardware_compatibility: HardwareCompatibility = Field(
        "none",
        description="GPUs that the plan may run on beside the one it was built on; slower than "
        "none",
    )
    version_compatible: bool = Field(False, description="Build a plan that later TensorRTs load")
    opset: Annotated[int, Field(ge=LEAST_EXPORT_OPSET, le=LARGEST_EXPORT_OPSET)] | None = Field(
        None,
        description=f"Opset of the export, not of an ONNX source; default: {EXPORT_OPSET}. INT8 "
        f"needs {LEAST_INT8_OPSET}",
    )
    sparsity: Sparsity = Field(
        "disable",
        description="enable: TensorRT may compute with weights of which two in four are zero",
    )
    plugins: tuple[PluginSpec, ...] = Field(
        (), max_length=8, description="Libraries of custom operators, for TensorRT on a GPU"
    )


class BudgetSpec(Value):
    """The least accuracy an engine may have against the source model."""

    mean: Share = Field(0.99, description="Least mean score of all samples")
    worst: Annotated[float, Field(ge=-1, le=1)] | None = Field(
        None, description="Least score of any one sample; default: not checked"
    )
    neighbours: Share | None = Field(
        None, description="Least share of samples that keep their nearest other; metric cosine only"
    )


class OutputAccuracySpec(Value):
    """The accuracy check of one output, where it differs from that of the others."""

    metric: Metric | None = Field(None, description="Default: accuracy.metric")
    budget: BudgetSpec | None = Field(None, description="Default: accuracy.budget")


class ReferenceSpec(Value):
    """A float network that a quantized source is judged against."""

    onnx: str = Field(
        description="ONNX file with the source's inputs and outputs: an s3:// URI, or a path "
        "relative to the onboarding root"
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the file, as `sha256sum` prints it"
    )


class AccuracySpec(Value):
    """The accuracy check of an engine; the dataset must share no line with the calibration set."""

    dataset: str = Field(description=DATASET)
    metric: Metric = Field(
        "cosine",
        description="Score of a sample, 1 being the source model's answer: cosine; agreement "
        "(same class, same labels, or the share of tokens of the same label); accuracy (share of "
        "the source model's accuracy that is kept; needs labels); order (share of a query's pairs "
        "of texts that are in the same order); relative_error (1 less the relative error)",
    )
    budget: BudgetSpec = Field(BudgetSpec(), description="The least accuracy allowed")
    outputs: dict[str, OutputAccuracySpec] = Field(
        default_factory=dict,
        description="Metric and budget of outputs of their own, by the output's name; the others "
        "are judged one by one by accuracy.metric and accuracy.budget",
    )
    reference: ReferenceSpec | None = Field(
        None,
        description="The float network that `source.onnx` was quantized from; default: the source "
        "itself. Only for source.onnx",
    )

    @property
    def metrics(self) -> frozenset[Metric]:
        """Every metric that some output may be judged by."""
        own = (output.metric for output in self.outputs.values())
        return frozenset({self.metric, *(metric for metric in own if metric is not None)})


class EndpointSpec(Value):
    """The endpoint of one model alone."""

    instance_type: str = Field(description="A row of onboarding/data/instance_types.yaml")
    latency_slo_ms: Annotated[float, Field(ge=0.001, le=1000 * ASYNCHRONOUS_SECONDS)] | None = (
        Field(None, description="Latency promised, in milliseconds; alarms watch it")
    )
    scaling: ScalingSpec = Field(ScalingSpec(), description="How many instances")
    rollout: Rollout = Field("canary", description="How a new version takes over the traffic")
    weight: Weight = Field(1.0, description="Share of the traffic, beside the models that join")
    instance_pools: tuple[InstancePoolSpec, ...] = Field(
        (),
        max_length=INSTANCE_POOL_COUNT - 1,
        description="Further instance types, tried when the first has no capacity",
    )
    data_capture: DataCaptureSpec | None = Field(
        None, description="Keep a share of requests and answers; default: none"
    )
    asynchronous: AsynchronousSpec | None = Field(
        None, description="Answer by way of S3; default: at once"
    )
    network_isolation: bool = Field(
        True, description="The container reaches no network, not even AWS"
    )
    metrics: MetricsSpec | None = Field(
        None, description="Further metrics; default: those that SageMaker publishes by itself"
    )

    @property
    def is_component(self) -> bool:
        """True where an inference component answers: SageMaker scales it to zero, and no variant.

        A queue scales to zero without one.
        """
        return self.scaling.fewest == 0 and self.asynchronous is None


class JoinSpec(Value):
    """A variant behind another model's endpoint: a share of the traffic, or a copy of it."""

    joins: str = Field(
        description="The model, with an endpoint of its own, beside which this one answers"
    )
    role: Role = Field(
        "variant",
        description="variant: takes a share of the traffic; shadow: gets a copy, and its "
        "answers are thrown away",
    )
    weight: Weight = Field(1.0, description="Share of the traffic, or of the copies")
    instance_type: str | None = Field(None, description="Default: the other model's")
    scaling: ScalingSpec | None = Field(None, description="Default: the other model's")


def _endpoint_tag(value: object) -> str:
    if isinstance(value, str):
        return SHARED
    return (
        JOINED
        if isinstance(value, JoinSpec) or (isinstance(value, Mapping) and "joins" in value)
        else OWN
    )


_Endpoint = Annotated[
    Annotated[EndpointSpec, Tag(OWN)]
    | Annotated[str, Tag(SHARED)]
    | Annotated[JoinSpec, Tag(JOINED)],
    Discriminator(_endpoint_tag),
]


class ModelSpec(Value):
    """One model file, whole."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(
        description="The file's name without .yaml: letters, digits and single hyphens"
    )
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Words by which environments choose models (`models: {only: [team=search]}`)",
    )
    task: Task = Field(description="What goes in and comes out")
    source: SourceSpec = Field(
        description="Where the network comes from: exactly one of python_package, huggingface, "
        "checkpoint, onnx; always pinned"
    )
    engine: EngineSpec = Field(description="What is compiled")
    accuracy: AccuracySpec = Field(description="The accuracy check")
    serving: ServingSpec = Field(ServingSpec(), description="What answers, inside the endpoint")
    endpoint: _Endpoint | None = Field(
        None,
        description="An endpoint of its own, the name of a shared one in endpoints/, or a place "
        "beside another model; none for a model that only ensembles call",
    )


class SharedEndpointSpec(EndpointSpec):
    """One multi-model endpoint, `endpoints/<name>.yaml`; models join it by naming it."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(
        description="The file's name without .yaml: letters, digits and single hyphens"
    )
    server: Server = Field(
        "triton", description="What answers for every model; on a GPU it must be triton"
    )


ENSEMBLE: Literal["ensemble"] = "ensemble"
OF_STEPS = frozenset(("source", "engine"))
"""Sections of a model file that an ensemble has not: its steps have them."""
REPOSITORY = "triton_repository"
OF_NETWORKS = frozenset(("accuracy", "engine"))
"""Sections of a model file that a repository has not: nothing is compiled of it, and no float
network tells what it should answer."""
_NO_ENGINE = EngineSpec(optimization_profiles=(OptimizationProfileSpec(batch=(1, 1, 1)),))
Tensor = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./:-]{1,128}$")]


class StepSpec(Value):
    """One model of an ensemble."""

    model: str = Field(description="A model file of this repository, by its name")


class EnsembleSpec(ModelSpec):
    """One model file with `task: ensemble`."""

    source: SourceSpec = Field(SourceSpec(), description="Of a model that is no ensemble")
    engine: EngineSpec = Field(_NO_ENGINE, description="Of a model that is no ensemble")
    steps: tuple[StepSpec, ...] = Field(
        (),
        max_length=16,
        description="The models in order; each takes what the one before answers, by name, or else "
        "in order",
    )
    outputs: tuple[Tensor, ...] = Field(
        (), max_length=32, description="The tensors of the last model that clients get"
    )
    example: dict[str, JsonValue] | None = Field(
        None,
        description="One row of each input of the first model, which health requests send; "
        "default: zeros, one word, or an image of one pixel",
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the archive by name, each once."""
        return tuple(dict.fromkeys(step.model for step in self.steps))


class RepositorySpec(ModelSpec):
    """One model file with `source: {triton_repository: …}`."""

    engine: EngineSpec = Field(_NO_ENGINE, description="Of a network")
    accuracy: AccuracySpec = Field(AccuracySpec(dataset=""), description="Of a network")

    @property
    def repository(self) -> TritonRepositorySpec:
        """Where the repository lies."""
        assert self.source.triton_repository is not None
        return self.source.triton_repository
