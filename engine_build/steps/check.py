"""Compile checks that passed, kept beside the network they belong to: the same network and profiles
are not compiled again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from engine_build.context import BuildContext
from engine_build.onnx_graph.compile_check import INTENT, compile_checks
from engine_build.onnx_graph.network_store import Network
from engine_build.request import BuildRequest
from engine_build.steps.step import BuildState, Step
from engine_build.store import FolderStore, Store, sha256_of
from onboarding.manifest import CompileCheckRecord
from onboarding.names import network_path

DISTRIBUTION = "tensorrt-rtx-cu13"
PREFIX = "check-"


def check_path(request: BuildRequest, network: Network) -> str | None:
    """Where the check of a network lies, by its bytes, the profiles and the compiler; None where
    there is no compiler.
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


def kept_check(stores: Sequence[Store], path: str | None) -> CompileCheckRecord | None:
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


def checked(
    context: BuildContext, networks: Mapping[str, Network]
) -> tuple[CompileCheckRecord, ...]:
    """A record of every network, kept or made now; none where the compiler is missing.

    Raises NetworkRefused.
    """
    with context.log.step("check", INTENT):
        paths = {name: check_path(context.request, network) for name, network in networks.items()}
        kept = {name: kept_check(context.stores, path) for name, path in paths.items()}
        for name in (name for name, record in kept.items() if record is not None):
            context.log.line(f"  {name}: passed when the network was made")
        missing = tuple(networks[name] for name, record in kept.items() if record is None)
        made = compile_checks(
            missing, context.request.model.engine.optimization_profiles, context.runner, context.log
        )
        for record in made:
            _keep(context.kept, paths[record.network], record, context.work.scratch("check"))
    return tuple(record for record in (*kept.values(), *made) if record is not None)


def _keep(store: Store, path: str | None, record: CompileCheckRecord, scratch: Path) -> None:
    if path is not None:
        file = scratch / "check.json"
        file.write_text(record.model_dump_json(), encoding="utf-8")
        store.upload(file, path)


def run(context: BuildContext, state: BuildState) -> None:
    """Check every network. Raises NetworkRefused."""
    state.checks = checked(context, state.networks)


CHECK = Step(name="check", run=run)
