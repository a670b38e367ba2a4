"""The check step: NVIDIA's own parser and builder on every network, with no GPU.

It runs in a process that may crash alone. What passed is kept beside its network: the same network
and profiles are not compiled again.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine_build.context import BuildContext
from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.refusal import TENSORRT_ONLY, Fault, explanation, refused_operators
from engine_build.request import BuildRequest
from engine_build.runner import Command, Ended, Runner
from engine_build.steps.step import BuildState, Step
from engine_build.store import FolderStore, Store, sha256_of
from onboarding.manifest import CompileCheckRecord
from onboarding.model_spec import OptimizationProfileSpec
from onboarding.names import network_path

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
        record = check_record(network, ended)
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


def check_record(network: Network, ended: Ended) -> CompileCheckRecord:
    """What a child said, or how it died."""
    try:
        result = json.loads(ended.output.strip().splitlines()[-1])
        faults = [Fault(**fault) for fault in result.pop("faults", ())]
        reason = explanation(network.path, faults) if faults else None
        return CompileCheckRecord(tool=TOOL, network=network.precision, reason=reason, **result)
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


DISTRIBUTION = "tensorrt-rtx-cu13"
PREFIX = "check-"


def check_path(request: BuildRequest, network: Network) -> str | None:
    """Return where the check of a network lies; None where there is no compiler.

    The network's bytes, the profiles and the compiler decide it.
    """
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    profiles = [
        profile.model_dump(mode="json") for profile in request.model.engine.optimization_profiles
    ]
    words = json.dumps([version, profiles, sha256_of(network.path)])
    return network_path(
        request.network_keys[network.precision],
        f"{PREFIX}{hashlib.sha256(words.encode()).hexdigest()[:16]}.json",
    )


def check_names(store: FolderStore, request: BuildRequest) -> tuple[str, ...]:
    """Every check of a request's networks in a folder."""
    folders = [Path(network_path(key, PREFIX)).parent for key in request.network_keys.values()]
    return tuple(
        (folder / path.name).as_posix()
        for folder in folders
        for path in store.path(str(folder)).glob(f"{PREFIX}*")
    )


def stored_check(stores: Sequence[Store], path: str | None) -> CompileCheckRecord | None:
    """The check, if a store has it."""
    found = () if path is None else filter(None, (store.read(path) for store in stores))
    for data in found:
        try:
            record = CompileCheckRecord.model_validate_json(data)
        except ValidationError:
            continue
        if record.verdict == "pass":
            return record
    return None


def check_networks(
    context: BuildContext, networks: Mapping[str, Network]
) -> tuple[CompileCheckRecord, ...]:
    """A record of every network, kept or made now; none where the compiler is missing.

    Raises NetworkRefused.
    """
    with context.log.step("check", INTENT):
        paths = {name: check_path(context.request, network) for name, network in networks.items()}
        selected = {name: stored_check(context.stores, path) for name, path in paths.items()}
        for name in (name for name, record in selected.items() if record is not None):
            context.log.line(f"  {name}: passed when the network was made")
        missing = tuple(networks[name] for name, record in selected.items() if record is None)
        made = compile_checks(
            missing, context.request.model.engine.optimization_profiles, context.runner, context.log
        )
        for record in made:
            _keep(context.work_store, paths[record.network], record, context.work.scratch("check"))
    return tuple(record for record in (*selected.values(), *made) if record is not None)


def _keep(store: Store, path: str | None, record: CompileCheckRecord, scratch: Path) -> None:
    if path is not None:
        file = scratch / "check.json"
        file.write_text(record.model_dump_json(), encoding="utf-8")
        store.upload(file, path)


def run(context: BuildContext, state: BuildState) -> None:
    """Check every network. Raises NetworkRefused."""
    state.checks = check_networks(context, state.networks)


CHECK = Step(name="check", run=run)
