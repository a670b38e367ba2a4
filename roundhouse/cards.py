"""Fetches the card of an engine: what it is, how it was judged, how fast it is, on one page."""

from __future__ import annotations

from pathlib import Path

from onboarding.deployment import Target
from onboarding.names import artifact_bucket, engine_card_data_path, engine_card_path
from roundhouse.aws.clients import object_bytes
from roundhouse.choices import choices
from roundhouse.errors import RoundhouseError
from roundhouse.road import Road


def fetch_card(road: Road, model: str, folder: Path) -> Path:
    """Writes card.html of a model's engine, and card.json beside it; returns the page.

    Raises RoundhouseError.
    """
    target = _target(road, model)
    bucket, environment = artifact_bucket(road.environment), road.environment.name
    page = folder / f"{environment}-{model}.html"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in (
        (engine_card_path(target.engine_key), page),
        (engine_card_data_path(target.engine_key), page.with_suffix(".json")),
    ):
        data = object_bytes(road.clients("s3"), bucket, name)
        if data is None:
            build = f"`roundhouse build --env {environment} --model {model}`"
            raise RoundhouseError(
                f"{model}: s3://{bucket}/{name} is not there; {build} builds the engine and its card."
            )
        path.write_bytes(data)
    return page


def _target(road: Road, model: str) -> Target:
    targets = {
        target.model.name: target
        for deployment in road.deployments()
        for target in deployment.targets
    }
    if model not in targets:
        known = choices(model, sorted(targets))
        raise RoundhouseError(
            f"{model!r}: no such model in environment {road.environment.name}; {known}"
        )
    return targets[model]
