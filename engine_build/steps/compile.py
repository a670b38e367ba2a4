"""The compile step: candidates for the engine, each from the network it needs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine_build.context import BuildContext
from engine_build.errors import InputRefused, NothingForInt8
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import version
from engine_build.packaging.archive import backend_file
from engine_build.quantization.calibration_cache import check_calibration
from engine_build.quantization.dynamic import quantize_dynamically
from engine_build.request import BuildRequest
from engine_build.runner import Runner
from engine_build.steps.step import BuildState, Step
from engine_build.tensorrt.compilation import Compilation
from engine_build.tensorrt.host import GpuHost, check_host, gpu_host, trtexec_version
from engine_build.tensorrt.network import installed_bindings
from engine_build.tensorrt.trtexec import PROGRAM
from onboarding.keys import chosen_network
from onboarding.values import Precision

ON_CPU: tuple[Precision, ...] = ("fp32", "int8")
ON_GPU: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")


def precisions(request: BuildRequest) -> tuple[Precision, ...]:
    """The precisions tried, the plainest first."""
    requested = request.model.engine.precision
    if requested != "auto":
        return (requested,)
    plain: Precision = "fp32" if request.is_cpu else "fp16"
    return (plain, "int8") if request.may_be_int8 else (plain,)


def check_machine(
    request: BuildRequest, runner: Runner, *, forward_compatible: bool = False
) -> GpuHost | None:
    """The GPU that builds; None for a CPU engine.

    Refuses, before anything is fetched, what this machine cannot make.
    """
    allowed = ON_CPU if request.is_cpu else ON_GPU
    unknown = sorted(set(precisions(request)) - set(allowed))
    if unknown:
        reason = (
            "nothing here calibrates an FP8 network"
            if unknown[0] == "fp8"
            else "ONNX Runtime on a CPU gains nothing by it"
        )
        raise InputRefused(
            f"precision {unknown[0]} cannot be built: {reason}; allowed: {', '.join(allowed)}, "
            "auto."
        )
    if request.may_be_int8 and request.quantization == "calibration-cache":
        check_calibration(request)
    if request.is_cpu:
        return None
    if runner.find(PROGRAM) is None:
        raise InputRefused(
            f"{PROGRAM} is not on this machine, and an engine for compute capability "
            f"{request.compute_capability} needs it; build it in the GPU builder image, as "
            "`roundhouse build` does."
        )
    host = check_host(request, runner, forward_compatible=forward_compatible)
    installed_bindings()
    return host


def compile_candidates(
    context: BuildContext, networks: Mapping[str, Network]
) -> tuple[Candidate, ...]:
    """Return every candidate of a request, the plainest first. Raises BuildError."""
    wanted = candidate_precisions(context.request, networks)
    if not context.request.is_cpu:
        return _plans(context, networks, wanted)
    folder, candidates = context.work.scratch("engines"), []
    for precision in wanted:
        try:
            candidates.append(_cpu_candidate(precision, networks["float"], folder))
        except NothingForInt8 as error:
            if context.request.model.engine.precision != "auto":
                raise
            context.log.line(f"  int8 is not tried: {error}")
    return tuple(candidates)


def candidate_precisions(
    request: BuildRequest, networks: Mapping[str, Network]
) -> tuple[Precision, ...]:
    """The precisions that there are networks for."""
    by_cache = request.quantization == "calibration-cache"
    return tuple(
        precision
        for precision in precisions(request)
        if precision != "int8" or by_cache or "int8" in networks
    )


def fallback(context: BuildContext, networks: Mapping[str, Network]) -> Candidate | None:
    """Compile what `auto` may still take where FP16 misses the budget: FP32 on a GPU."""
    if context.request.is_cpu or context.request.model.engine.precision != "auto":
        return None
    return _plans(context, networks, ("fp32",))[0]


def _plans(
    context: BuildContext, networks: Mapping[str, Network], wanted: Sequence[Precision]
) -> tuple[Candidate, ...]:
    gpu, tensorrt = gpu_host(context.runner).gpu, trtexec_version(context.runner)
    by_cache = context.request.quantization == "calibration-cache"
    candidates = []
    for precision in wanted:
        network = networks["float" if by_cache else chosen_network(precision)]
        made = Compilation(
            context=context, precision=precision, network=network, gpu=gpu, tensorrt=tensorrt
        )
        path, record = made.compile()
        candidates.append(Candidate(precision=precision, path=path, plan=record))
    return tuple(candidates)


def _cpu_candidate(precision: Precision, network: Network, folder: Path) -> Candidate:
    path = folder / f"{precision}.onnx"
    if precision == "fp32":
        shutil.copyfile(network.path, path)
    else:
        quantize_dynamically(network.path, path)
    return Candidate(precision=precision, path=path)


def refuse_unfit_machine(context: BuildContext) -> None:
    """Refuse, before anything is fetched, what this machine cannot build. Raises InputRefused."""
    request = context.request
    check_machine(request, context.runner, forward_compatible=context.settings.forward_compatible)
    if request.is_cpu and version() != request.runtime.version:
        raise InputRefused(
            f"this machine has {request.runtime.name} {version()}, but platform "
            f"{request.platform.name} serves {request.runtime.version}; "
            "build with the environment of requirements/builder.txt."
        )
    backend_file((request.root, context.code_root))


def run(context: BuildContext, state: BuildState) -> None:
    """Compile every candidate. Raises InputRefused and NetworkRefused."""
    wanted = ", ".join(candidate_precisions(context.request, state.networks))
    with context.log.step("compile", f"{wanted} for {context.request.runtime.name}"):
        state.candidates = compile_candidates(context, state.networks)


COMPILE = Step(name="compile", run=run)
