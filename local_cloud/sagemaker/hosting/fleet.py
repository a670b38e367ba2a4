"""The instances of an endpoint config's variants: started, stopped, picked, and replaced."""

from __future__ import annotations

import contextvars
import logging
import random
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from local_cloud.account import in_background
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.definitions import hosts_components, instance_types, ordered_pools
from local_cloud.sagemaker.hosting.instance import (
    Instance,
    Launch,
    NoInstance,
    ServerError,
    end_together,
    in_use,
    start_instance,
    start_together,
)
from local_cloud.sagemaker.hosting.machine import start_machine
from local_cloud.settings import Settings

DRAIN_SECONDS = 10.0
RETRY_SECONDS = 5.0
Spec = Mapping[str, Any]
FindModel = Callable[[str], Spec]
"""Raises AwsError for a model that does not exist."""
logger = logging.getLogger("roundhouse.fleet")


@dataclass(kw_only=True, eq=False)
class VariantFleet:
    """One variant's instances: `desired` is their number, `instances` are the healthy ones."""

    spec: Spec
    settings: Settings
    find_model: FindModel
    folder: Path
    weight: float
    desired: int
    instances: list[Instance] = field(default_factory=list)
    lost: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _changing: threading.RLock = field(default_factory=threading.RLock)
    _retry_at: float = 0.0
    _given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.spec["VariantName"])

    @contextmanager
    def serving(self, avoided: Collection[Instance] = ()) -> Iterator[Instance]:
        """Pick an instance by the routing strategy; it is not stopped while it is in use."""
        routing = self.spec.get("RoutingConfig") or {}
        with in_use(lambda: self.instances, avoided, routing, self._turn) as instance:
            yield instance

    def fill(self) -> None:
        """Start all missing instances or none. Raises ServerError."""
        with self._changing:
            missing = self.desired - len(self.instances)
            if self._given_up.is_set() or missing <= 0:
                return
            end = partial(self._end, drain_seconds=0.0)
            started = start_together(self._launch, missing, end)
            with self._turn:
                self.instances.extend(started)

    def shrink(self) -> None:
        """Stop instances beyond the desired count after their last answer: unused, then newest."""
        with self._changing:
            with self._turn:
                self.instances.sort(key=lambda instance: instance.is_unused)
                beyond = self.instances[self.desired :]
                del self.instances[self.desired :]
            self._end(beyond, DRAIN_SECONDS)

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Stop every instance for good, and give up those that are being started."""
        self.desired = 0
        self._given_up.set()
        with self._changing, self._turn:
            instances, self.instances = self.instances, []
        self._end(instances, drain_seconds)

    def drop(self, instance: Instance) -> None:
        """Send no more requests to an instance whose server is gone."""
        with self._turn:
            if instance not in self.instances:
                return
            self.instances.remove(instance)
            self.lost += 1
        message = "instance %s of variant %s is lost (log: %s)"
        logger.warning(message, instance.folder.name, self.name, instance.log)
        in_background(self._end, [instance], 0.0)

    def mend(self) -> None:
        """Start replacements for lost instances in the background; retry later on failure."""
        if (
            len(self.instances) < self.desired
            and time.monotonic() >= self._retry_at
            and self._changing.acquire(blocking=False)
        ):
            self._changing.release()
            self._retry_at = time.monotonic() + RETRY_SECONDS
            in_background(self._replace)

    def _replace(self) -> None:
        try:
            self.fill()
        except ServerError as error:
            logger.warning("variant %s: %s", self.name, error)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        self._retry_at = 0.0

    def _launch(self) -> Instance:
        instance_type = instance_types(self.spec)[0]
        folder = self.folder / f"{self.name}-{next(self._numbers)}"
        if hosts_components(self.spec):
            return start_machine(self.spec, instance_type, folder)
        launch = Launch(
            variant=self.spec,
            instance_type=instance_type,
            model=self._model(),
            folder=folder,
            given_up=self._given_up,
        )
        return start_instance(launch, self.settings)

    def _model(self) -> Spec:
        """The model of the first pool, which always has capacity here, or the variant's."""
        name = ordered_pools(self.spec)[0].get("ModelNameOverride") or self.spec["ModelName"]
        try:
            return self.find_model(name)
        except AwsError as error:
            raise ServerError(error.message) from error

    def _end(self, instances: list[Instance], drain_seconds: float) -> None:
        end_together([partial(instance.stop, drain_seconds) for instance in instances])


@dataclass(kw_only=True, eq=False)
class Fleet:
    """Production variants, which take traffic by weight, and shadow variants, which get copies."""

    config_name: str
    config: Spec
    folder: Path
    production: Mapping[str, VariantFleet]
    shadow: Mapping[str, VariantFleet]

    @property
    def variants(self) -> tuple[VariantFleet, ...]:
        """Every variant, shadows last."""
        return (*self.production.values(), *self.shadow.values())

    @property
    def hosts_components(self) -> bool:
        """Whether its instances take copies of inference components."""
        return any(hosts_components(variant.spec) for variant in self.variants)

    @contextmanager
    def serving(
        self, name: str | None, avoided: Collection[Instance] = ()
    ) -> Iterator[tuple[VariantFleet, Instance]]:
        """Pick a production variant, by name or by weight, and an instance. Raises NoInstance."""
        able = [
            variant
            for variant in self.production.values()
            if name in (None, variant.name)
            and any(instance not in avoided for instance in variant.instances)
        ]
        if not able:
            raise NoInstance
        weights = [variant.weight for variant in able]
        variant = random.choices(able, weights if any(weights) else None)[0]
        with variant.serving(avoided) as instance:
            yield variant, instance

    def start(self) -> None:
        """Start every variant's instances; when one fails, none is left and its error raised."""
        try:
            with ThreadPoolExecutor(len(self.variants), thread_name_prefix="fleet") as starters:
                futures = [
                    starters.submit(contextvars.copy_context().run, variant.fill)
                    for variant in self.variants
                ]
            for future in futures:
                future.result()
        except BaseException:
            self.stop(0.0)
            raise

    def drop_lost(self) -> None:
        """Remove instances whose server ended."""
        for variant in self.variants:
            for instance in tuple(variant.instances):
                if instance.has_ended():
                    variant.drop(instance)

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Stop every variant's instances and remove the fleet's folder."""
        for variant in self.variants:
            variant.stop(drain_seconds)
        shutil.rmtree(self.folder, ignore_errors=True)


def new_fleet(config: Spec, settings: Settings, find_model: FindModel, folder: Path) -> Fleet:
    """Return a fleet as its endpoint config describes it, not started yet."""

    def variants(field: str) -> Mapping[str, VariantFleet]:
        return {
            spec["VariantName"]: VariantFleet(
                spec=spec,
                settings=settings,
                find_model=find_model,
                folder=folder,
                weight=spec.get("InitialVariantWeight", 1),
                desired=spec["InitialInstanceCount"],
            )
            for spec in config.get(field) or ()
        }

    return Fleet(
        config_name=config["EndpointConfigName"],
        config=config,
        folder=folder,
        production=variants("ProductionVariants"),
        shadow=variants("ShadowProductionVariants"),
    )
