"""Rules of `serving.runtime`: what a baseline runs on, of which source, and beside which keys."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.dataset import Datasets
from onboarding.fault import Fault, comma_list
from onboarding.model_spec import ModelSpec
from onboarding.platform import host_images, serving_platforms
from onboarding.rules.cases import EngineCase
from onboarding.validation import Checked
from onboarding.values import BASELINE_RUNTIMES, PYTORCH_RUNTIMES, RequestedPrecision, Runtime

RUNTIME = "serving.runtime"
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


def pytorch_has_a_checkpoint(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """A program is exported from the source model, and an ONNX file holds none."""
    runtime = model.spec.serving.runtime
    if runtime in PYTORCH_RUNTIMES and model.spec.source.onnx is not None:
        yield model.fault(
            RUNTIME,
            f"{runtime} needs the model in PyTorch, and the source is an ONNX file",
            allowed="onnxruntime, onnxruntime-cuda, onnxruntime-tensorrt, tensorrt",
            way_out="choose one of these, or name the checkpoint (python_package, huggingface, "
            "checkpoint)",
            beside=["source"],
        )


def baseline_has_options_of_its_own(
    model: Checked[ModelSpec], datasets: Datasets
) -> Iterator[Fault]:
    """It computes in what its library does, and has neither plans nor TensorRT's calibrator."""
    engine, runtime = model.spec.engine, model.spec.serving.runtime
    if runtime is None or runtime not in BASELINE_RUNTIMES:
        return
    if engine.precision not in PRECISIONS[runtime]:
        yield model.fault(
            "engine.precision",
            f"{engine.precision} is not for 'serving.runtime' {runtime}",
            allowed=comma_list(PRECISIONS[runtime]),
            way_out=f"write `engine: {{precision: {PRECISIONS[runtime][0]}}}` where the runtime is "
            "chosen, or leave the runtime out",
            beside=[RUNTIME],
        )
    calibrated = [key for key in ("calibration", "sensitivity_search") if getattr(engine, key)]
    for key in calibrated[:1] if runtime in PYTORCH_RUNTIMES else ():
        yield model.fault(
            f"engine.{key}",
            f"is for INT8 and FP8, and 'serving.runtime' {runtime} computes in FP32",
            way_out=f"take it out, or write `engine: {{{key}: null}}` where the runtime is chosen",
            beside=[RUNTIME],
        )
    for key, value, default in (
        ("plugins", [item.name for item in engine.plugins], []),
        ("sparsity", engine.sparsity, "disable"),
        ("quantization", engine.quantization or "explicit", "explicit"),
    ):
        if value != default:
            yield model.fault(
                f"engine.{key}",
                f"is for TensorRT plans, and 'serving.runtime' is {runtime}",
                value=value,
                way_out=f"take it out, or write `engine: {{{key}: {default}}}` where the runtime "
                "is chosen",
                beside=[RUNTIME],
            )


def compiled_programs_are_warm(model: Checked[ModelSpec], datasets: Datasets) -> Iterator[Fault]:
    """torch.compile takes longer than SageMaker waits for an answer."""
    serving = model.spec.serving
    if serving.runtime == "pytorch-compile" and not serving.warm_up:
        yield model.fault(
            "serving.warm_up",
            "is false, and pytorch-compile would compile at the first requests, which SageMaker "
            "gives up",
            allowed="true",
            way_out="take it out, or choose runtime pytorch",
            beside=[RUNTIME],
        )


def runtime_runs_there(case: EngineCase) -> Iterator[Fault]:
    """CUDA and TensorRT need a GPU, and a provider loads one major version of TensorRT."""
    runtime, platform = case.model.spec.serving.runtime, case.platform
    allowed = ON_GPU if case.instance.is_gpu else ON_CPU
    if runtime is None:
        return
    if runtime not in allowed:
        hardware = "has a GPU" if case.instance.is_gpu else "has no GPU"
        does = "computes on the CPU" if runtime == "onnxruntime" else "needs a GPU"
        yield case.model.fault(
            RUNTIME,
            f"{runtime} {does}, and {case.instance.name} {hardware}",
            allowed=comma_list(allowed),
            way_out="choose one of these for this environment, leave it out, or change the "
            "instance type",
            beside=[case.instance_path],
        )
    elif platform.runtime_version(runtime) is None and runtime != "tensorrt":
        rows = serving_platforms().values()
        having = [row.name for row in rows if row.runtime_version(runtime) is not None]
        yield case.model.at(RUNTIME).fault(
            f"platform {platform.name} has no {runtime}",
            value=runtime,
            allowed=f"a platform of {comma_list(having)}",
            way_out="choose another runtime, or change the environment's platform",
        )


def baseline_is_served_by_the_python_server(case: EngineCase) -> Iterator[Fault]:
    """Triton's image has neither torch nor our use of these providers."""
    serving = case.model.spec.serving
    runtime, names_server = serving.runtime, "server" in serving.model_fields_set
    if runtime not in BASELINE_RUNTIMES:
        return
    if case.is_called:
        yield case.model.fault(
            RUNTIME,
            f"{runtime} is the Python server's, and an ensemble, which Triton plays, calls this "
            "model",
            allowed="onnxruntime on a CPU, tensorrt on a GPU",
            way_out="leave it out, or make a model file of the baseline's own",
        )
    elif case.multi_model:
        yield case.model.fault(
            RUNTIME,
            f"{runtime} cannot share an endpoint: models of a multi-model endpoint have one image, "
            "which lacks it",
            way_out="give the model an endpoint of its own, or a place beside another model "
            "(`endpoint: {joins: NAME}`)",
            beside=["endpoint"],
        )
    elif case.server != "python" or (names_server and serving.server == "triton"):
        # A model that joins, whose server is python then, may ask for triton in words.
        yield case.model.fault(
            RUNTIME,
            f"{runtime} is the Python server's",
            value="server: triton",
            allowed="server: python",
            way_out="write `serving: {server: python}`, or leave the runtime out",
            beside=["serving.server"],
        )


def driver_runs_the_baseline(case: EngineCase) -> Iterator[Fault]:
    """The CUDA builds of torch and ONNX Runtime bring a CUDA of their own."""
    least, runtime = case.platform.baseline_minimum_driver, case.model.spec.serving.runtime
    own, driver = case.platform.minimum_driver or 0, case.driver
    if runtime not in BASELINE_RUNTIMES or not case.instance.is_gpu or least is None:
        return
    # A driver below the platform's own limit has a fault already.
    if driver is not None and own <= driver < least:
        enough = [row.name for row in host_images().values() if row.driver >= least]
        yield case.model.fault(
            RUNTIME,
            f"{runtime} needs NVIDIA driver {least}, and the host image has {driver}",
            allowed=f"inference_ami_version: {comma_list(enough)}",
            way_out="name a newer host image in the environment, or choose another runtime",
        )


RULES = (pytorch_has_a_checkpoint, baseline_has_options_of_its_own, compiled_programs_are_warm)
ENGINE_RULES = (
    runtime_runs_there,
    baseline_is_served_by_the_python_server,
    driver_runs_the_baseline,
)
