"""Rules of `serving.runtime`: what a baseline runs on, of which source, and beside which keys."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.platform import InstanceType, host_images, serving_platforms
from onboarding.rules.rule import EngineCase, ModelCase, rule
from onboarding.values import BASELINE_RUNTIMES, PYTORCH_RUNTIMES, RequestedPrecision, Runtime

RUNTIME = ("serving", "runtime")
ON_GPU: tuple[Runtime, ...] = (
    "tensorrt",
    "onnxruntime-cuda",
    "onnxruntime-tensorrt",
    *PYTORCH_RUNTIMES,
)
ON_CPU: tuple[Runtime, ...] = ("onnxruntime", *PYTORCH_RUNTIMES)
PRECISIONS: dict[Runtime, tuple[RequestedPrecision, ...]] = {
    "onnxruntime-cuda": ("fp32", "fp16"),
    "onnxruntime-tensorrt": ("fp32", "fp16", "int8"),
    "pytorch": ("fp32",),
    "pytorch-compile": ("fp32",),
}
"""Of baselines; `auto` compares candidates on the GPU that serves, and a baseline is built on a
CPU."""


@rule("serving")
def runtime_runs_on_the_instance_type(case: EngineCase) -> Iterator[Fault]:
    """CUDA and TensorRT need a GPU; ONNX Runtime without a provider would leave one idle."""
    runtime, allowed = case.spec.serving.runtime, _runtimes(case.instance)
    if runtime is None or runtime in allowed:
        return
    hardware = "has a GPU" if case.instance.is_gpu else "has no GPU"
    does = "computes on the CPU" if runtime == "onnxruntime" else "needs a GPU"
    yield case.document.at_change(RUNTIME, case.instance_path).fault(
        f"'serving.runtime' {runtime} {does}, and {case.instance.name} {hardware}",
        value=runtime,
        allowed=comma_list(allowed),
        way_out="choose one of these for this environment, leave it out, or change the instance "
        "type",
    )


@rule("serving", "source")
def pytorch_has_a_checkpoint(case: ModelCase) -> Iterator[Fault]:
    """A program is exported from the source model, and an ONNX file holds none."""
    if case.spec.serving.runtime in PYTORCH_RUNTIMES and case.spec.source.onnx is not None:
        yield case.document.at_change(RUNTIME, ("source",)).fault(
            f"'serving.runtime' {case.spec.serving.runtime} needs the model in PyTorch, and the "
            "source is an ONNX file",
            value=case.spec.serving.runtime,
            allowed="onnxruntime, onnxruntime-cuda, onnxruntime-tensorrt, tensorrt",
            way_out="choose one of these, or name the checkpoint (python_package, huggingface, "
            "checkpoint)",
        )


@rule("serving", "engine")
def baseline_has_a_precision_of_its_own(case: ModelCase) -> Iterator[Fault]:
    """What its library computes in, without a choice."""
    runtime, precision = case.spec.serving.runtime, case.spec.engine.precision
    allowed = PRECISIONS.get(runtime) if runtime is not None else None
    if allowed is not None and precision not in allowed:
        yield case.document.at_change(("engine", "precision"), RUNTIME).fault(
            f"'engine.precision' {precision} is not for 'serving.runtime' {runtime}",
            value=precision,
            allowed=comma_list(allowed),
            way_out=f"write `engine: {{precision: {allowed[0]}}}` where the runtime is chosen, or "
            "leave the runtime out",
        )


@rule("serving", "engine")
def pytorch_is_not_calibrated(case: ModelCase) -> Iterator[Fault]:
    """Calibration sets ranges of ONNX networks."""
    engine = case.spec.engine
    if case.spec.serving.runtime not in PYTORCH_RUNTIMES:
        return
    for key in ("calibration", "sensitivity_search"):
        if getattr(engine, key) is not None:
            yield case.document.at_change(("engine", key), RUNTIME).fault(
                f"'engine.{key}' is for INT8 and FP8, and 'serving.runtime' "
                f"{case.spec.serving.runtime} computes in FP32",
                way_out=f"take it out, or write `engine: {{{key}: null}}` where the runtime is "
                "chosen",
            )
            return


@rule("serving", "engine")
def baseline_has_nothing_of_tensorrts(case: ModelCase) -> Iterator[Fault]:
    """Plugins and sparse kernels are of plans, calibration caches of TensorRT's builder."""
    engine, runtime = case.spec.engine, case.spec.serving.runtime
    if runtime not in BASELINE_RUNTIMES:
        return
    for key, value, default in (
        ("plugins", [item.name for item in engine.plugins], []),
        ("sparsity", engine.sparsity, "disable"),
        ("quantization", engine.quantization or "explicit", "explicit"),
    ):
        if value != default:
            yield case.document.at_change(("engine", key), RUNTIME).fault(
                f"'engine.{key}' is for TensorRT plans, and 'serving.runtime' is {runtime}",
                value=value,
                way_out=f"take it out, or write `engine: {{{key}: {default}}}` where the runtime "
                "is chosen",
            )


@rule("serving")
def compiled_programs_are_warm(case: ModelCase) -> Iterator[Fault]:
    """torch.compile takes longer than SageMaker waits for an answer."""
    serving = case.spec.serving
    if serving.runtime == "pytorch-compile" and not serving.warm_up:
        yield case.document.at_change(("serving", "warm_up"), RUNTIME).fault(
            "'serving.warm_up' is false, and pytorch-compile would compile at the first requests, "
            "which SageMaker gives up",
            value=False,
            allowed="true",
            way_out="take it out, or choose runtime pytorch",
        )


@rule("serving")
def baseline_is_served_by_the_python_server(case: EngineCase) -> Iterator[Fault]:
    """Triton's image has neither torch nor our use of these providers."""
    runtime = case.spec.serving.runtime
    if runtime not in BASELINE_RUNTIMES:
        return
    if case.is_called:
        yield case.document.at(*RUNTIME).fault(
            f"'serving.runtime' {runtime} is the Python server's, and an ensemble, which Triton "
            "plays, calls this model",
            value=runtime,
            allowed="onnxruntime on a CPU, tensorrt on a GPU",
            way_out="leave it out, or make a model file of the baseline's own",
        )
    elif case.multi_model:
        yield case.document.at_change(RUNTIME, ("endpoint",)).fault(
            f"'serving.runtime' {runtime} cannot share an endpoint: models of a multi-model "
            "endpoint have one image, which lacks it",
            value=runtime,
            way_out="give the model an endpoint of its own, or a place beside another model "
            "(`endpoint: {joins: NAME}`)",
        )
    elif case.server != "python" or _names_triton(case):
        yield case.document.at_change(RUNTIME, ("serving", "server")).fault(
            f"'serving.runtime' {runtime} is the Python server's",
            value="server: triton",
            allowed="server: python",
            way_out="write `serving: {server: python}`, or leave the runtime out",
        )


@rule("serving")
def platform_has_the_runtime(case: EngineCase) -> Iterator[Fault]:
    """A provider loads one major version of TensorRT."""
    runtime, platform = case.spec.serving.runtime, case.platform
    if runtime is None or runtime not in _runtimes(case.instance):
        return
    if platform.runtime_version(runtime) is None and runtime != "tensorrt":
        having = [
            row.name
            for row in serving_platforms().values()
            if row.runtime_version(runtime) is not None
        ]
        yield case.document.at(*RUNTIME).fault(
            f"platform {platform.name} has no {runtime}",
            value=runtime,
            allowed=f"a platform of {comma_list(having)}",
            way_out="choose another runtime, or change the environment's platform",
        )


@rule("serving")
def driver_runs_the_baseline(case: EngineCase) -> Iterator[Fault]:
    """The CUDA builds of torch and ONNX Runtime bring a CUDA of their own."""
    least, runtime = case.platform.baseline_minimum_driver, case.spec.serving.runtime
    if runtime not in BASELINE_RUNTIMES or not case.instance.is_gpu:
        return
    # The platform's own limit, where it is as high, has a finding already.
    own = case.platform.minimum_driver
    if least is None or case.driver is None or case.driver >= least:
        return
    if own is not None and case.driver < own:
        return
    enough = [row.name for row in host_images().values() if row.driver >= least]
    yield case.document.at(*RUNTIME).fault(
        f"'serving.runtime' {runtime} needs NVIDIA driver {least}, and the host image has "
        f"{case.driver}",
        value=runtime,
        allowed=f"inference_ami_version: {comma_list(enough)}",
        way_out="name a newer host image in the environment, or choose another runtime",
    )


def _runtimes(instance: InstanceType) -> tuple[Runtime, ...]:
    return ON_GPU if instance.is_gpu else ON_CPU


def _names_triton(case: EngineCase) -> bool:
    """True where a model that joins, whose server is python then, asks for triton in words."""
    serving = case.spec.serving
    return "server" in serving.model_fields_set and serving.server == "triton"
