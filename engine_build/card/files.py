"""The card's two files, made of an engine's record and of what its networks' records tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine_build.card.facts import CardFacts
from engine_build.card.page import card_data, card_page
from engine_build.onnx_graph.network_store import RECORD_NAME, NetworkRecord
from engine_build.request import BuildRequest
from engine_build.store import Store
from onboarding.lock import LockEntry
from onboarding.names import engine_card_data_path, engine_card_path, network_path
from onboarding.values import NOT_MEASURED


def card_files(
    request: BuildRequest, entry: LockEntry, networks: Sequence[Store], folder: Path
) -> list[tuple[str, Path]]:
    """Write card.html and card.json into a folder; return each with its name in a store.

    `networks`: where the networks' records are looked for, the nearest first. An archive of which
    nothing was measured has no card.
    """
    if entry.manifest.accuracy == NOT_MEASURED:
        return []
    keys = entry.manifest.network_keys
    facts = CardFacts(
        entry=entry,
        source=request.model.source,
        environment=request.environment,
        networks={name: _facts(networks, key) for name, key in keys.items()},
    )
    key, files = entry.manifest.engine_key, []
    names = (engine_card_path(key), engine_card_data_path(key))
    for name, data in zip(names, (card_page(facts), card_data(facts)), strict=True):
        path = folder / Path(name).name
        path.write_bytes(data)
        files.append((name, path))
    return files


def _facts(stores: Sequence[Store], key: str) -> dict[str, Any]:
    """Return what a network was kept with; nothing when it is not there."""
    for store in stores:
        data = store.read(network_path(key, RECORD_NAME))
        try:
            if data is not None:
                return NetworkRecord.model_validate_json(data).facts
        except ValidationError:
            continue
    return {}
