"""The compile step: candidates for the engine, each from the network it needs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import InputRefused
from engine_build.networks.network_store import Network
from engine_build.order import Order
from engine_build.quantization.calibration_cache import check_calibration
from engine_build.runner import Runner
from engine_build.shop import Shop
from engine_build.tensorrt.compilation import Compilation
from engine_build.tensorrt.host import GpuHost, check_host, gpu_host, trtexec_version
from engine_build.tensorrt.network import installed_bindings
from engine_build.tensorrt.trtexec import PROGRAM
from onboarding.keys import chosen_network
from onboarding.manifest import PlanRecord
from onboarding.values import Precision

ON_CPU: tuple[Precision, ...] = ("fp32", "int8")
ON_GPU: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An engine that may be published."""

    precision: Precision
    path: Path
    plan: PlanRecord | None = None
    """Of a TensorRT plan: what was read back from it."""


def precisions(order: Order) -> tuple[Precision, ...]:
    """The precisions tried, the plainest first."""
    asked = order.model.engine.precision
    if asked != "auto":
        return (asked,)
    plain: Precision = "fp32" if order.is_cpu else "fp16"
    return (plain, "int8") if order.may_be_int8 else (plain,)


def check_machine(
    order: Order, runner: Runner, *, forward_compatible: bool = False
) -> GpuHost | None:
    """The GPU that builds; None for a CPU engine.

    Refuses, before anything is fetched, what this machine cannot make.
    """
    allowed = ON_CPU if order.is_cpu else ON_GPU
    unknown = sorted(set(precisions(order)) - set(allowed))
    if unknown:
        reason = (
            "nothing here calibrates an FP8 network"
            if unknown[0] == "fp8"
            else "ONNX Runtime on a CPU gains nothing by it"
        )
        raise InputRefused(
            f"precision {unknown[0]} cannot be built: {reason}; allowed: {', '.join(allowed)}, auto."
        )
    if order.may_be_int8 and order.quantization == "calibration-cache":
        check_calibration(order)
    if order.is_cpu:
        return None
    if runner.find(PROGRAM) is None:
        raise InputRefused(
            f"{PROGRAM} is not on this machine, and an engine for compute capability {order.compute_capability} needs it; "
            "build it in the GPU builder image, as `roundhouse build` does."
        )
    host = check_host(order, runner, forward_compatible=forward_compatible)
    installed_bindings()
    return host


def compiled(shop: Shop, networks: Mapping[str, Network]) -> tuple[Candidate, ...]:
    """Every candidate of an order, the plainest first. Raises InputRefused and NetworkRefused."""
    wanted = tried(shop.order, networks)
    if shop.order.is_cpu:
        return compile_cpu(wanted, networks, shop.work.scratch("engines"))
    return _plans(shop, networks, wanted)


def tried(order: Order, networks: Mapping[str, Network]) -> tuple[Precision, ...]:
    """The precisions that there are networks for."""
    by_cache = order.quantization == "calibration-cache"
    return tuple(
        each for each in precisions(order) if each != "int8" or by_cache or "int8" in networks
    )


def fallback(shop: Shop, networks: Mapping[str, Network]) -> Candidate | None:
    """What `auto` may still take where FP16 misses the budget: FP32 on a GPU, compiled only when
    this is called.
    """
    if shop.order.is_cpu or shop.order.model.engine.precision != "auto":
        return None
    return _plans(shop, networks, ("fp32",))[0]


def compile_cpu(
    wanted: Sequence[Precision], networks: Mapping[str, Network], folder: Path
) -> tuple[Candidate, ...]:
    """ONNX Runtime engines: the float network itself, and its dynamic quantization."""
    return tuple(_cpu_candidate(precision, networks["float"], folder) for precision in wanted)


def _plans(
    shop: Shop, networks: Mapping[str, Network], wanted: Sequence[Precision]
) -> tuple[Candidate, ...]:
    gpu, tensorrt = gpu_host(shop.runner).gpu, trtexec_version(shop.runner)
    by_cache = shop.order.quantization == "calibration-cache"
    candidates = []
    for precision in wanted:
        network = networks["float" if by_cache else chosen_network(precision)]
        made = Compilation(
            shop=shop, precision=precision, network=network, gpu=gpu, tensorrt=tensorrt
        )
        path, record = made.finished()
        candidates.append(Candidate(precision=precision, path=path, plan=record))
    return tuple(candidates)


def _cpu_candidate(precision: Precision, network: Network, folder: Path) -> Candidate:
    path = folder / f"{precision}.onnx"
    if precision == "fp32":
        shutil.copyfile(network.path, path)
    else:
        _quantize_dynamic(network.path, path)
    return Candidate(precision=precision, path=path)


def _quantize_dynamic(network: Path, path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Its advice to pre-process comes as a bare warning of the root logger.
    logging.getLogger().setLevel(logging.ERROR)
    quantize_dynamic(str(network), str(path), weight_type=QuantType.QInt8, per_channel=True)
