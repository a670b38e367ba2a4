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

from engine_build.check.compile_check import INTENT, compile_checks
from engine_build.networks.network_store import Network
from engine_build.order import Order
from engine_build.shop import Shop
from engine_build.store import FolderStore, Store, sha256_of
from onboarding.manifest import CompileCheckRecord
from onboarding.names import network_path

DISTRIBUTION = "tensorrt-rtx-cu13"
CHECK = "check-"


def check_path(order: Order, network: Network) -> str | None:
    """Where the check of a network lies, by its bytes, the profiles and the compiler; None where
    there is no compiler.
    """
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    profiles = [
        profile.model_dump(mode="json") for profile in order.model.engine.optimization_profiles
    ]
    words = json.dumps([version, profiles, sha256_of(network.path)])
    return network_path(
        order.network_keys[network.precision],
        f"{CHECK}{hashlib.sha256(words.encode()).hexdigest()[:16]}.json",
    )


def check_names(store: FolderStore, order: Order) -> tuple[str, ...]:
    """Every check of an order's networks in a folder."""
    folders = [Path(network_path(key, CHECK)).parent for key in order.network_keys.values()]
    return tuple(
        (folder / path.name).as_posix()
        for folder in folders
        for path in store.path(str(folder)).glob(f"{CHECK}*")
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


def checked(shop: Shop, networks: Mapping[str, Network]) -> tuple[CompileCheckRecord, ...]:
    """A record of every network, kept or made now; none where the compiler is missing.

    Raises NetworkRefused.
    """
    with shop.log.step("check", INTENT):
        paths = {name: check_path(shop.order, network) for name, network in networks.items()}
        kept = {name: kept_check(shop.stores, path) for name, path in paths.items()}
        for name in (name for name, record in kept.items() if record is not None):
            shop.log.line(f"  {name}: passed when the network was made")
        missing = tuple(networks[name] for name, record in kept.items() if record is None)
        made = compile_checks(
            missing, shop.order.model.engine.optimization_profiles, shop.runner, shop.log
        )
        for record in made:
            _keep(shop.kept, paths[record.network], record, shop.work.scratch("check"))
    return tuple(record for record in (*kept.values(), *made) if record is not None)


def _keep(store: Store, path: str | None, record: CompileCheckRecord, scratch: Path) -> None:
    if path is not None:
        file = scratch / "check.json"
        file.write_text(record.model_dump_json(), encoding="utf-8")
        store.upload(file, path)
