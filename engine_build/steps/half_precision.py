"""The half precision step: the networks that a GPU compiles, judged in ONNX Runtime on the CPU.

A GPU's fp16 and explicit int8 engines are compiled from networks in FP16. They are written and
judged here, so that nothing is first refused on the GPU machine. Nodes of which a fused kernel may
hold more than FP16 does stay FP32. What passed is kept beside its network: the GPU machine writes
the same network, and does not judge it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from engine_build.datasets.dataset import rows_of_samples
from engine_build.errors import BudgetMissed, NetworkRefused, SourceFault
from engine_build.evaluation.accuracy import accuracy, format_record
from engine_build.evaluation.decision import Findings, refuse_missed_budget
from engine_build.onnx_graph.external_data import load_model, network_sha256
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork, version
from engine_build.quantization.given_qdq import given_precision
from engine_build.request import BuildContext, BuildRequest
from engine_build.steps.step import BuildState, find_record, keep_record
from engine_build.steps.verify import standard
from engine_build.tensorrt.fused_ranges import held_beyond_half
from engine_build.tensorrt.half_precision import write_half_precision
from onboarding.keys import HALF_PRECISION_VERSION, chosen_network, plugin_operators
from onboarding.manifest import AccuracyRecord
from onboarding.names import network_path
from onboarding.values import Precision, Value

BATCH = 32
PREFIX = "half-"
RANGE_SAMPLES = 64
"""Validation samples, evenly apart, on which the values that kernels hold are bounded."""
RANGE_BATCH = 4
"""Rows whose values are bounded at once: all of a network's are in memory together, 16 GB of ViT-B
at 32 images and 4.8 GB at 4, in the same time. Rows of a batch are padded, as a GPU's are.
"""
ROUNDS = 5
"""A node in FP32 may pass its value on, so that the next one has to be FP32 too."""


class HalfRecord(Value):
    """What decides a network in FP16, and how it was judged."""

    accuracy: AccuracyRecord
    full: tuple[str, ...]
    """Nodes that stay FP32, because a kernel may hold more than FP16 does."""


def run(context: BuildContext, state: BuildState) -> None:
    """Write and judge each network; under `auto` one that fails is left out, with its reason.

    Raises NetworkRefused, BudgetMissed and SourceFault.
    """
    request = context.request
    with context.log.step("half precision", "networks in FP16, in ONNX Runtime on the CPU"):
        given = given_precision(state.networks)
        for precision in request.half_precisions if given is None else (given,):
            network = state.networks.get(chosen_network(precision))
            if network is None:
                continue
            try:
                half = _half_network(context, state, precision, network)
                state.half_networks[precision] = half
                state.networks[chosen_network(precision)] = dataclasses.replace(
                    network, full=half.full
                )
            except (NetworkRefused, BudgetMissed, SourceFault) as error:
                if not state.may_leave_out:
                    raise
                context.log.line(f"  {precision} is not tried: {error}")
                state.refused[precision] = str(error)


def half_path(request: BuildRequest, precision: Precision, network: Network) -> str:
    """Return where the record of a network in FP16 lies: all that decides it is in its name."""
    fields = request.model.accuracy.model_dump(mode="json")
    digests = (network_sha256(network.path), request.validation_sha256)
    words = [version(), *digests, fields, request.longest_sequence, HALF_PRECISION_VERSION]
    words.append(RANGE_SAMPLES)
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()
    key = request.network_key(chosen_network(precision))
    return network_path(key, f"{PREFIX}{precision}-{digest[:16]}.json")


def _half_network(
    context: BuildContext, state: BuildState, precision: Precision, network: Network
) -> Network:
    path = context.work.scratch(f"half-{precision}") / "model.onnx"
    operators = plugin_operators(context.request.model)
    name = half_path(context.request, precision, network)
    record = find_record(context.stores, name, HalfRecord)
    if record is not None:
        write_half_precision(network.path, path, operators, record.full)
    else:
        full = _write_within_range(context, state, network, path)
        record = HalfRecord(accuracy=_compare(context, state, precision, path), full=full)
        keep_record(context, name, record)
    context.log.line(f"  {format_record(record.accuracy)}")
    findings = Findings(accuracy={precision: record.accuracy}, broken={})
    refuse_missed_budget(precision, findings)
    name = f"{precision} in FP16"
    return dataclasses.replace(network, precision=name, path=path, full=record.full)


def _write_within_range(
    context: BuildContext, state: BuildState, network: Network, path: Path
) -> tuple[str, ...]:
    """Write a network in FP16 of which no kernel holds more; return the nodes that stay FP32.

    Raises NetworkRefused for a node that FP32 does not help.
    """
    values, operators = context.request.validation.values, plugin_operators(context.request.model)
    samples = values[:: -(-len(values) // RANGE_SAMPLES)]
    full: dict[str, None] = {}
    for _ in range(ROUNDS):
        write_half_precision(network.path, path, operators, full)
        held = held_beyond_half(load_model(path), state.encoder.feeds(samples, RANGE_BATCH))
        new = [name for item in held for name in item.wide if name not in full]
        if not held:
            return tuple(full)
        if not new:
            break
        for item in held:
            context.log.line(f"  {item}: FP32 there")
        full.update(dict.fromkeys(new))
    raise NetworkRefused(
        f"the network leaves FP16's range, whatever stays FP32: {held[0]}; ask for precision bf16 "
        "or fp32, or scale the network down there."
    )


def _compare(
    context: BuildContext, state: BuildState, precision: Precision, path: Path
) -> AccuracyRecord:
    """Compare the network's answers to the validation samples with the source model's."""
    assert state.reference is not None
    samples = context.request.validation
    batches = -(-len(samples) // BATCH)
    answer = context.log.count_calls(OrtNetwork(path, fuses_qdq=False).rows, batches)
    rows = rows_of_samples(answer, state.encoder, samples.values, BATCH)
    return accuracy(f"{precision} network in FP16", rows, standard(context, state))
