"""Compile checks that passed, kept beside the network they belong to: the same network and profiles are not compiled again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from engine_build.compile_check import INTENT, compile_checks
from engine_build.networks import Network
from engine_build.order import Order
from engine_build.shop import Shop
from engine_build.store import Store
from onboarding.manifest import CompileCheckRecord
from onboarding.names import network_path

DISTRIBUTION = "tensorrt-rtx-cu13"


def check_path(order: Order, network: str) -> str | None:
    """Where the check of an order's `float` or `int8` network lies, by profiles and compiler; None where there is no compiler."""
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    profiles = [profile.model_dump(mode="json") for profile in order.model.engine.optimization_profiles]
    digest = hashlib.sha256(json.dumps([version, profiles]).encode()).hexdigest()[:16]
    return network_path(order.network_keys[network], f"check-{digest}.json")


def kept_check(stores: Sequence[Store], order: Order, network: str) -> CompileCheckRecord | None:
    """The check, if a store has it."""
    path = check_path(order, network)
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
    """A record of every network, kept or made now; none where the compiler is missing. Raises NetworkRefused."""
    with shop.log.step("check", INTENT):
        kept = {name: kept_check(shop.stores, shop.order, name) for name in networks}
        for name in (name for name, record in kept.items() if record is not None):
            shop.log.line(f"  {name}: passed when the network was made")
        missing = tuple(networks[name] for name, record in kept.items() if record is None)
        made = compile_checks(missing, shop.order.model.engine.optimization_profiles, shop.runner, shop.log)
        for record in made:
            _keep(shop.kept, shop.order, record, shop.work.scratch("check"))
    return tuple(record for record in (*kept.values(), *made) if record is not None)


def _keep(store: Store, order: Order, record: CompileCheckRecord, scratch: Path) -> None:
    path = check_path(order, record.network)
    if path is not None:
        file = scratch / "check.json"
        file.write_text(record.model_dump_json(), encoding="utf-8")
        store.upload(file, path)
