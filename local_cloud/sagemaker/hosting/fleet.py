"""The instances of one variant.

Started and stopped as its count asks, replaced when one dies, asked in turn.
"""

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
from itertools import count
from pathlib import Path
from typing import Any

from local_cloud.containers.quotas import Capacity, InsufficientCapacity
from local_cloud.sagemaker.checks import instance_types, number, ordered_pools
from local_cloud.sagemaker.hosting.instance import Instance, Launch, ServerError, start_instance
from local_cloud.settings import Settings

DRAIN_SECONDS = 10.0
STARTED_AT_ONCE = 4
RETRY_SECONDS = 5.0
FindModel = Callable[[str], Mapping[str, Any]]
logger = logging.getLogger("roundhouse.fleet")


class NoInstance(Exception):
    """A variant has no instance that could be asked."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """What every fleet starts its instances with.

    `find_model` gives a model's record or a ServerError.
    """

    settings: Settings
    capacity: Capacity
    find_model: FindModel


@dataclass(kw_only=True, eq=False)
class VariantFleet:
    """One variant's instances.

    `desired` is how many there should be, `instances` those that are healthy.
    """

    spec: Mapping[str, Any]
    host: Host
    folder: Path
    weight: float
    desired: int
    instances: list[Instance] = field(default_factory=list)
    lost: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _changing: threading.RLock = field(default_factory=threading.RLock)
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _retry_at: float = 0.0
    _given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The variant's name."""
        return str(self.spec["VariantName"])

    @contextmanager
    def serving(self, avoided: Collection[Instance] = ()) -> Iterator[Instance]:
        """Picks an instance by the routing strategy; it is not stopped while it is in use."""
        with self._turn:
            candidates = [instance for instance in self.instances if instance not in avoided]
            if not candidates:
                raise NoInstance(f"variant {self.name} has no instance")
            chosen = self._choose(candidates)
            chosen.in_flight += 1
        try:
            yield chosen
        finally:
            with self._turn:
                chosen.in_flight -= 1

    def _choose(self, candidates: list[Instance]) -> Instance:
        if (self.spec.get("RoutingConfig") or {}).get("RoutingStrategy", "RANDOM") == "RANDOM":
            return random.choice(candidates)
        least = min(instance.in_flight for instance in candidates)
        return random.choice([instance for instance in candidates if instance.in_flight == least])

    def fill(self) -> None:
        """Starts as many instances as are missing, all or none.

        ServerError or InsufficientCapacity says why not.
        """
        with self._changing:
            if self._given_up.is_set():
                return
            self._start(self.desired - len(self.instances))

    def shrink(self) -> None:
        """Stops instances beyond the desired count, newest first, after their last answer."""
        with self._changing:
            with self._turn:
                beyond = self.instances[self.desired :]
                del self.instances[self.desired :]
            self._end(beyond, DRAIN_SECONDS)

    def stop(self, drain_seconds: float = DRAIN_SECONDS) -> None:
        """Stops every instance for good, and gives up those that are being started."""
        self.desired = 0
        self._given_up.set()
        with self._changing, self._turn:
            every, self.instances = self.instances, []
        self._end(every, drain_seconds)

    def drop(self, instance: Instance) -> None:
        """Asks an instance no more: its server is gone or sick."""
        with self._turn:
            if instance not in self.instances:
                return
            self.instances.remove(instance)
            self.lost += 1
        logger.warning(
            "instance %s of variant %s is lost (log: %s)",
            instance.place.name,
            self.name,
            instance.log,
        )
        self._in_background(self._end, [instance], 0.0)

    def mend(self) -> None:
        """Starts replacements for lost instances in the background.

        One that cannot be started is tried again later.
        """
        if (
            len(self.instances) < self.desired
            and time.monotonic() >= self._retry_at
            and self._changing.acquire(blocking=False)
        ):
            self._changing.release()
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._in_background(self._replace)

    def _replace(self) -> None:
        try:
            self.fill()
        except (ServerError, InsufficientCapacity) as error:
            logger.warning("variant %s: %s", self.name, error)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        self._retry_at = 0.0

    def _start(self, missing: int) -> None:
        if missing <= 0:
            return
        with ThreadPoolExecutor(
            min(missing, STARTED_AT_ONCE), thread_name_prefix="start"
        ) as starters:
            begun = [
                starters.submit(self._context.copy().run, self._launch) for _ in range(missing)
            ]
        failures = [future.exception() for future in begun if future.exception() is not None]
        started = [future.result() for future in begun if future.exception() is None]
        if failures:
            self._end(started, 0.0)
            raise failures[0] or RuntimeError
        with self._turn:
            self.instances.extend(started)

    def _launch(self) -> Instance:
        instance_type = self.host.capacity.take(instance_types(self.spec))
        try:
            place = self.folder / f"{self.name}-{next(self._numbers)}"
            launch = Launch(
                variant=self.spec,
                instance_type=instance_type,
                model=self._model(instance_type),
                place=place,
                given_up=self._given_up,
            )
            return start_instance(launch, self.host.settings)
        except BaseException:
            self.host.capacity.give_back(instance_type)
            raise

    def _model(self, instance_type: str) -> Mapping[str, Any]:
        """The model for an instance type: its pool's own, where it names one."""
        (pool,) = (
            pool for pool in ordered_pools(self.spec) if pool["InstanceType"] == instance_type
        )
        return self.host.find_model(str(pool.get("ModelNameOverride") or self.spec["ModelName"]))

    def _end(self, instances: list[Instance], drain_seconds: float) -> None:
        ending = [
            threading.Thread(target=instance.stop, args=(drain_seconds,), daemon=True)
            for instance in instances
        ]
        for thread in ending:
            thread.start()
        for thread, instance in zip(ending, instances, strict=True):
            thread.join()
            self.host.capacity.give_back(instance.instance_type)

    def _in_background(self, function: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(
            target=self._context.copy().run, args=(function, *arguments), daemon=True
        ).start()


def new_variant(spec: Mapping[str, Any], host: Host, folder: Path) -> VariantFleet:
    """A variant as its endpoint config begins it.

    Weight 1 where none is said, and no instance started yet.
    """
    return VariantFleet(
        spec=spec,
        host=host,
        folder=folder,
        weight=number(spec.get("InitialVariantWeight", 1)),
        desired=int(number(spec["InitialInstanceCount"])),
    )


@dataclass(kw_only=True, eq=False)
class Fleet:
    """Production variants, which take traffic by weight, and shadow variants, which get copies."""

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
        """Picks a production variant, by name or by weight, and one of its instances.

        NoInstance when none can be asked.
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
        """Starts every variant's instances.

        When one cannot be started, none is left and its reason is raised.
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
