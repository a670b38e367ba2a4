"""The fleet of one endpoint config: all its variants' instances."""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cloud.instance import Instance
from local_cloud.variant_fleet import DRAIN_SECONDS, Host, NoInstance, VariantFleet, new_variant


@dataclass(kw_only=True, eq=False)
class Fleet:
    """Production variants take an endpoint's traffic by weight; shadow variants get copies of it."""

    config_name: str
    config: Mapping[str, Any]
    folder: Path
    production: Mapping[str, VariantFleet]
    shadow: Mapping[str, VariantFleet]

    @property
    def variants(self) -> tuple[VariantFleet, ...]:
        """Every variant, shadows last."""
        return (*self.production.values(), *self.shadow.values())

    @contextmanager
    def serving(
        self, wanted: str | None, avoided: Collection[Instance] = ()
    ) -> Iterator[tuple[VariantFleet, Instance]]:
        """Picks a production variant, by name or by weight, and one of its instances; NoInstance
        when none can be asked.
        """
        variant = self._variant(wanted, avoided)
        with variant.serving(avoided) as instance:
            yield variant, instance

    def _variant(self, wanted: str | None, avoided: Collection[Instance]) -> VariantFleet:
        named = [variant for name, variant in self.production.items() if wanted in (None, name)]
        able = [
            variant
            for variant in named
            if any(instance not in avoided for instance in variant.instances)
        ]
        if not able:
            raise NoInstance
        weights = [variant.weight for variant in able]
        return random.choices(able, weights if any(weights) else None)[0]

    def start(self) -> None:
        """Starts every variant's instances; when one cannot be started, none is left and its reason
        is raised.
        """
        try:
            with ThreadPoolExecutor(len(self.variants), thread_name_prefix="fleet") as starters:
                begun = [starters.submit(variant.fill) for variant in self.variants]
            for future in begun:
                future.result()
        except BaseException:
            self.stop(0.0)
            raise

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Stops every variant's instances and removes the fleet's folder."""
        for variant in self.variants:
            variant.stop(drain_seconds)
        shutil.rmtree(self.folder, ignore_errors=True)

    def has_lost(self) -> bool:
        """Whether an instance was lost since the fleet started."""
        return any(variant.lost for variant in self.variants)


def new_fleet(config: Mapping[str, Any], host: Host, folder: Path) -> Fleet:
    """A fleet as its endpoint config begins it, not started yet."""
    return Fleet(
        config_name=str(config["EndpointConfigName"]),
        config=config,
        folder=folder,
        production=_variants(config["ProductionVariants"], host, folder),
        shadow=_variants(config.get("ShadowProductionVariants") or (), host, folder),
    )


def _variants(
    specs: Collection[Mapping[str, Any]], host: Host, folder: Path
) -> Mapping[str, VariantFleet]:
    return {str(spec["VariantName"]): new_variant(spec, host, folder) for spec in specs}
