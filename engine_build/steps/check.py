"""The check step: NVIDIA's own parser and builder on every network, with no GPU.

It runs in a process that may crash alone. What passed is kept beside its network: the same network
and profiles are not compiled again.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Sequence
from importlib import metadata

from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.external_data import network_sha256
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.refusal import Fault, explanation, operators_of_tensorrt
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext, BuildRequest
from engine_build.runner import TIMED_OUT, Command, Ended, Runner
from engine_build.steps.step import BuildState, find_record, keep_record
from onboarding.keys import chosen_network
from onboarding.manifest import CompileCheckRecord, CompiledLayersRecord
from onboarding.model_spec import OptimizationProfileSpec
from onboarding.names import network_path
from onboarding.values import Precision

TOOL = "tensorrt_rtx"
DISTRIBUTION = "tensorrt-rtx-cu13"
INTENT = (
    "TensorRT-RTX parses and compiles each network with the spec's profiles, strongly typed, "
    "no GPU; not the serving engine"
)
UNAVAILABLE = 3
"""Exit code of the child when there is no TensorRT-RTX for this machine."""
GATE_SECONDS, EVIDENCE_SECONDS = 600, 120
"""TensorRT-RTX 1.7 takes some 20 ms for each node of a long chain, which it compiles into few
kernels."""
PREFIX = "check-"
HALVES: tuple[Precision, ...] = ("fp16", "int8", "fp8")


def compile_check(
    network: Network,
    profiles: Sequence[OptimizationProfileSpec],
    runner: Runner,
    log: Log,
    *,
    is_gate: bool = True,
) -> CompileCheckRecord | None:
    """Return the record of a network; None where the tool is missing.

    Raises NetworkRefused for one that is refused, unless that is evidence alone: TensorRT's own
    list supports the operators, or, without `is_gate`, no TensorRT runs the engine.
    """
    shapes = json.dumps([profile.model_dump(mode="json") for profile in profiles])
    seconds = GATE_SECONDS if is_gate else EVIDENCE_SECONDS
    name, unchecked = network.precision, f"the {network.precision} network was NOT checked"
    argv = (sys.executable, "-m", "engine_build.onnx_graph.rtx", str(network.path), shapes)
    ended = runner.run(Command(argv=argv, timeout_seconds=seconds))
    if ended.code == UNAVAILABLE:
        log.line(f"  {TOOL} cannot be loaded here ({ended.last_error}): {unchecked}")
        return None
    if ended.code == TIMED_OUT:
        log.line(f"  warning: {TOOL} did not end within {seconds} seconds: {unchecked}")
        return None
    faults = [Fault(**fault) for fault in ended.report.get("faults", ())]
    record = check_record(network, ended, faults)
    layers, counts = record.layers, ""
    if layers is not None:
        counts = (
            f"; {layers.layers} layers, {layers.int8_products} of {layers.products} products in "
            f"INT8, {layers.reformats} only reformat, {layers.activation_mib} MiB of activations"
        )
    log.line(
        f"  {name}: {record.verdict} in {record.seconds:.1f} seconds ({TOOL} {record.version})"
        f"{counts}"
    )
    if record.verdict == "pass":
        return record
    operators = operators_of_tensorrt(network.path, faults)
    if operators:
        excuse = f"TensorRT's operator list supports {', '.join(sorted(operators))}"
    elif not is_gate:
        excuse = "the engine runs in ONNX Runtime, so it decides nothing"
    else:
        raise NetworkRefused(
            f"TensorRT-RTX {record.version} refuses the {name} network: {record.reason}."
        )
    reason = f"TensorRT-RTX refuses: {record.reason}; {excuse}"
    log.line(f"  warning: {reason}")
    return record.model_copy(update={"reason": reason})


def check_record(network: Network, ended: Ended, faults: Sequence[Fault]) -> CompileCheckRecord:
    """Return what a child reported, or how it died."""
    try:
        fields = dict(ended.report)
        fields.pop("faults", None)
        if fields.get("layers") is not None:
            fields["layers"] = CompiledLayersRecord(**fields["layers"])
        reason = explanation(network.path, faults) if faults else None
        return CompileCheckRecord(tool=TOOL, network=network.precision, reason=reason, **fields)
    except (TypeError, ValueError):
        return CompileCheckRecord(
            tool=TOOL,
            version="?",
            network=network.precision,
            verdict="fail",
            seconds=0.0,
            reason=_death(ended),
        )


def _death(ended: Ended) -> str:
    if ended.code == -signal.SIGKILL:
        return (
            f"the compiler was killed ({ended.last_error}), most often for want of memory: use a "
            "machine with more of it"
        )
    return (
        f"the compiler {ended.how} ({ended.last_error}); export it with opset 17 (`engine.opset` "
        "for a checkpoint) or with another exporter, and report the network to NVIDIA"
    )


def _check_path(request: BuildRequest, network: Network) -> str | None:
    """Return where the check of a network lies; None where there is no compiler.

    The network's bytes, the profiles and the compiler decide it.
    """
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    profiles = [item.model_dump(mode="json") for item in request.model.engine.optimization_profiles]
    words = json.dumps([version, profiles, network_sha256(network.path), "layers"])
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    # A network in FP16 lies beside the one that it was written of.
    kept = {f"{precision} in FP16": chosen_network(precision) for precision in HALVES}
    key = request.network_key(kept.get(network.precision, network.precision))
    return network_path(key, f"{PREFIX}{digest}.json")


def run(context: BuildContext, state: BuildState) -> None:
    """Check every network, or find its record. Raises NetworkRefused."""
    request, log = context.request, context.log
    with log.step("check", INTENT):
        sources, given = state.networks, given_precision(state.networks)
        if given is not None:
            # One network under two names, of which a GPU compiles that in FP16.
            sources = {} if state.half_networks else {given: sources[given]}
        checked = (*sources.values(), *state.half_networks.values())
        networks = {item.precision: item for item in checked}
        paths = {name: _check_path(request, item) for name, item in networks.items()}
        known = {
            name: record
            for name, path in paths.items()
            if path is not None
            and (record := find_record(context.stores, path, CompileCheckRecord)) is not None
            and record.verdict == "pass"
        }
        for name in known:
            log.line(f"  {name}: passed when the network was made")
        missing = [network for name, network in networks.items() if name not in known]
        profiles = request.model.engine.optimization_profiles
        halves = {item.precision: name for name, item in state.half_networks.items()}
        new: list[CompileCheckRecord] = []
        for network in missing:
            try:
                record = compile_check(
                    network, profiles, context.runner, log, is_gate=request.is_plan
                )
                new += [] if record is None else [record]
            except NetworkRefused as error:
                precision = halves.get(network.precision)
                if precision is None or not state.may_leave_out:
                    raise
                log.line(f"  {precision} is not tried: {error}")
                state.refused[precision] = str(error)
        for record in new:
            path = paths[record.network]
            if path is not None and record.verdict == "pass":
                keep_record(context, path, record)
    state.checks = (*known.values(), *new)
