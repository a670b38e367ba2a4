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
from pathlib import Path

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
DISTRIBUTION = "tensorrt-rtx-cu13"
INTENT = (
    "TensorRT-RTX parses and compiles each network with the spec's profiles, strongly typed, "
    "no GPU; not the serving engine"
)
UNAVAILABLE = 3
"""Exit code of the child when there is no TensorRT-RTX for this machine."""
PREFIX = "check-"


def compile_checks(
    networks: Sequence[Network],
    profiles: Sequence[OptimizationProfileSpec],
    runner: Runner,
    log: Log,
) -> tuple[CompileCheckRecord, ...]:
    """Return a record of each network that passed; none where the tool is missing.

    Raises NetworkRefused at the first that does not.
    """
    records, shapes = [], json.dumps([profile.model_dump(mode="json") for profile in profiles])
    for network in networks:
        name, unchecked = network.precision, f"the {network.precision} network was NOT checked"
        module = "engine_build.onnx_graph.rtx"
        argv = (sys.executable, "-m", module, str(network.path), shapes)
        ended = runner.run(Command(argv=argv, timeout_seconds=600))
        if ended.code == UNAVAILABLE:
            log.line(f"  {TOOL} cannot be loaded here ({ended.last_error}): {unchecked}")
            continue
        record = check_record(network, ended)
        log.line(
            f"  {name}: {record.verdict} in {record.seconds:.1f} seconds ({TOOL} {record.version})"
        )
        if record.verdict == "pass":
            records.append(record)
            continue
        lacking = refused_operators(network.path, _faults(ended))
        if not lacking or not lacking <= TENSORRT_ONLY:
            raise NetworkRefused(
                f"TensorRT-RTX {record.version} refuses the {name} network: {record.reason}."
            )
        log.line(
            f"  warning: {TOOL} lacks {', '.join(sorted(lacking))}, which TensorRT itself "
            f"supports; {unchecked}"
        )
    return tuple(records)


def check_record(network: Network, ended: Ended) -> CompileCheckRecord:
    """Return what a child reported, or how it died."""
    try:
        fields = dict(ended.report)
        fields.pop("faults", None)
        faults = _faults(ended)
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


def _faults(ended: Ended) -> list[Fault]:
    return [Fault(**fault) for fault in ended.report.get("faults", ())]


def _death(ended: Ended) -> str:
    if ended.code == -signal.SIGKILL:
        return (
            f"the compiler was killed ({ended.last_error}), most often for want of memory: use a "
            "machine with more of it"
        )
    return (
        f"the compiler {ended.how} ({ended.last_error}); export with another opset or exporter, "
        "and report the network to NVIDIA"
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
    words = json.dumps([version, profiles, sha256_of(network.path)])
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    return network_path(request.network_keys[network.precision], f"{PREFIX}{digest}.json")


def check_names(store: FolderStore, request: BuildRequest) -> tuple[str, ...]:
    """Return every check of a request's networks in a folder."""
    folders = [Path(network_path(key, PREFIX)).parent for key in request.network_keys.values()]
    return tuple(
        (folder / path.name).as_posix()
        for folder in folders
        for path in store.path(str(folder)).glob(f"{PREFIX}*")
    )


def _stored_check(stores: Sequence[Store], path: str) -> CompileCheckRecord | None:
    for store in stores:
        try:
            record = CompileCheckRecord.model_validate_json(store.read(path) or b"")
        except ValidationError:
            continue
        if record.verdict == "pass":
            return record
    return None


def run(context: BuildContext, state: BuildState) -> None:
    """Check every network, or find its record. Raises NetworkRefused."""
    request, log = context.request, context.log
    with log.step("check", INTENT):
        paths = {name: _check_path(request, item) for name, item in state.networks.items()}
        known = {
            name: record
            for name, path in paths.items()
            if path is not None and (record := _stored_check(context.stores, path)) is not None
        }
        for name in known:
            log.line(f"  {name}: passed when the network was made")
        missing = [network for name, network in state.networks.items() if name not in known]
        profiles = request.model.engine.optimization_profiles
        new = compile_checks(missing, profiles, context.runner, log)
        file = context.work.scratch("check") / "check.json"
        for record in new:
            path = paths[record.network]
            if path is not None:
                file.write_text(record.model_dump_json(), encoding="utf-8")
                context.work_store.upload(file, path)
    state.checks = (*known.values(), *new)


CHECK = Step(name="check", run=run)
