"""The compile step: candidates for the engine, each from the network it needs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.networks import Network
from engine_build.order import Order
from engine_build.runner import Runner
from engine_build.shop import Shop
from engine_build.trtexec import Request, Shapes, command
from onboarding.keys import chosen_network
from onboarding.values import Precision

PROGRAM = "trtexec"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An engine that may be published."""

    precision: Precision
    path: Path


def precisions(order: Order) -> tuple[Precision, ...]:
    """The precisions tried, the plainest first."""
    asked = order.model.engine.precision
    if asked != "auto":
        return (asked,)
    plain: Precision = "fp32" if order.is_cpu else "fp16"
    return (plain, "int8") if order.may_be_int8 else (plain,)


def check_machine(order: Order, runner: Runner) -> None:
    """Refuses, before anything is fetched, an engine that this machine cannot make."""
    unknown = sorted(set(precisions(order)) - {"fp32", "int8"})
    if order.is_cpu and unknown:
        raise InputRefused(f"precision {unknown[0]} is not for CPU engines; allowed: fp32, int8, auto.")
    if not order.is_cpu and runner.find(PROGRAM) is None:
        raise InputRefused(
            f"{PROGRAM} is not on this machine, and an engine for compute capability {order.compute_capability} needs it; "
            "build it in the GPU builder image, as `roundhouse build` does."
        )


def compiled(shop: Shop, networks: Mapping[str, Network]) -> tuple[Candidate, ...]:
    """Every candidate of an order. Raises InputRefused for TensorRT plans once they are made: nothing here judges one yet."""
    order = shop.order
    if order.is_cpu:
        return compile_cpu(order, networks, shop.work.scratch("engines"))
    folder = shop.work.path / "plans"
    folder.mkdir(exist_ok=True)
    for precision in precisions(order):
        network = networks[chosen_network(precision)]
        compile_plan(order, precision, network.path, folder, network.input_names, shop.runner)
    raise InputRefused(f"the plans lie in {folder}, but no plan can be judged yet, so none is published; use CPU instance types.")


def compile_cpu(order: Order, networks: Mapping[str, Network], folder: Path) -> tuple[Candidate, ...]:
    """ONNX Runtime engines: the float network itself, and its dynamic quantization."""
    return tuple(_cpu_candidate(precision, networks["float"], folder) for precision in precisions(order))


def compile_plan(
    order: Order, precision: Precision, network: Path, folder: Path, inputs: Sequence[str], runner: Runner
) -> Candidate:
    """A TensorRT plan, by trtexec. Never executed where this repository was made: no machine there has trtexec."""
    path = folder / f"{precision}.plan"
    request = Request(
        network=network,
        plan=path,
        precision=precision,
        strongly_typed=precision == "int8",
        profiles=tuple(
            Shapes(inputs=tuple(inputs), batch=p.batch, sequence=p.sequence) for p in order.model.engine.optimization_profiles
        ),
        timing_cache=folder / "timing.cache",
        workspace_mib=order.model.engine.workspace_mib,
    )
    if order.platform.trtexec_dialect is None:
        raise InputRefused(f"platform {order.platform.name} has no TensorRT; choose another in the environment file.")
    ended = runner.run(command(request, order.platform.trtexec_dialect))
    if ended.code != 0 or not path.is_file():
        raise NetworkRefused(f"{PROGRAM} ended with code {ended.code} and gave no {precision} plan; the log has its words.")
    return Candidate(precision=precision, path=path)


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
