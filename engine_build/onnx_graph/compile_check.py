"""The compile check: NVIDIA's own parser and builder on a network, with no GPU, in a process that
may crash alone.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.operators import TENSORRT_ONLY
from engine_build.onnx_graph.refusal import Fault, explained, refused_operators
from engine_build.runner import Command, Ended, Runner
from onboarding.manifest import CompileCheckRecord
from onboarding.model_spec import OptimizationProfileSpec

TOOL = "tensorrt_rtx"
INTENT = (
    "TensorRT-RTX parses and compiles each network with the spec's profiles, strongly typed, "
    "no GPU; not the serving engine"
)
UNKNOWN = "?"
UNAVAILABLE = 3
"""Exit code of the child when there is no TensorRT-RTX for this machine."""


def check_command(network: Path, profiles: Sequence[OptimizationProfileSpec]) -> Command:
    """The child process of one check."""
    shapes = [profile.model_dump(mode="json") for profile in profiles]
    return Command(
        argv=(
            sys.executable,
            "-m",
            "engine_build.onnx_graph.rtx",
            str(network),
            json.dumps(shapes),
        ),
        timeout_seconds=600,
    )


def compile_checks(
    networks: Sequence[Network],
    profiles: Sequence[OptimizationProfileSpec],
    runner: Runner,
    log: Log,
) -> tuple[CompileCheckRecord, ...]:
    """A record of each network that passed; none where the tool is missing.

    Raises NetworkRefused at the first that does not.
    """
    records = []
    for network in networks:
        ended = runner.run(check_command(network.path, profiles))
        if ended.code == UNAVAILABLE:
            log.line(
                f"  {TOOL} cannot be loaded here ({_last_words(ended)}): the {network.precision} "
                "network was NOT checked"
            )
            continue
        record = record_of(network, ended)
        log.line(
            f"  {record.network}: {record.verdict} in {record.seconds:.1f} seconds ({record.tool} "
            f"{record.version})"
        )
        if record.verdict == "fail":
            lacking = _operators_of_tensorrt_alone(network, ended)
            if lacking:
                log.line(
                    f"  warning: {TOOL} lacks {', '.join(sorted(lacking))}, which TensorRT itself "
                    f"supports; the {network.precision} network was NOT checked"
                )
                continue
            raise NetworkRefused(
                f"TensorRT-RTX {record.version} refuses the {record.network} network: "
                f"{record.reason}."
            )
        records.append(record)
    return tuple(records)


def _operators_of_tensorrt_alone(network: Network, ended: Ended) -> frozenset[str]:
    """Return the refused operators if TensorRT supports all of them; none otherwise."""
    faults = [Fault(**fault) for fault in _child_result(ended).get("faults", ())]
    operators = refused_operators(network.path, faults)
    return operators if operators <= TENSORRT_ONLY else frozenset()


def _child_result(ended: Ended) -> dict[str, Any]:
    try:
        result = json.loads(ended.output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def record_of(network: Network, ended: Ended) -> CompileCheckRecord:
    """What a child said, or how it died."""
    try:
        said = json.loads(ended.output.strip().splitlines()[-1])
        faults = [Fault(**fault) for fault in said.pop("faults", ())]
        reason = explained(network.path, faults) if faults else None
        return CompileCheckRecord(tool=TOOL, network=network.precision, reason=reason, **said)
    except (IndexError, TypeError, ValueError):
        return CompileCheckRecord(
            tool=TOOL,
            version=UNKNOWN,
            network=network.precision,
            verdict="fail",
            seconds=0.0,
            reason=_death(ended),
        )


def _death(ended: Ended) -> str:
    last = _last_words(ended)
    if ended.code == -signal.SIGKILL:
        return (
            f"the compiler was killed ({last}), most often for want of memory: use a machine with "
            "more of it"
        )
    how = (
        f"was killed by signal {-ended.code}" if ended.code < 0 else f"ended with code {ended.code}"
    )
    return (
        f"the compiler {how} ({last}); export with another opset or exporter, and report the "
        "network to NVIDIA"
    )


def _last_words(ended: Ended) -> str:
    return (ended.errors.strip().splitlines() or ["it said nothing"])[-1]
