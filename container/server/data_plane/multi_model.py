"""The models of a multi-model server, loaded and unloaded by SageMaker's requests.

Every model has a batcher and slot threads of its own: a waiting thread costs nothing, the scheduler
shares the cores among models, and unloading one affects no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from container.archive import ArchiveRefused, EngineArchive
from container.server.batching.batcher import Batcher
from container.server.data_plane.model import (
    Model,
    count_truncated,
    data_plane_of,
    model_batcher,
)
from container.server.data_plane.plane import DataPlane
from container.server.engines.engine import Costs, Engine, is_memory_shortage
from container.server.process import free_mib
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metrics import BatchMetrics, ServerMetrics
from container.server.types import Conflict, OutOfMemory, RequestFault, UnknownPath, first_line

LAST_SECONDS = 1.0
"""Seconds that engines may take to close at shutdown."""


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model by the name that requests use; `url` is the path of its archive."""

    name: str
    url: str
    engine: Engine
    backend: Batcher
    plane: DataPlane


class LoadedModels:
    """The loaded models; methods run on the event loop, loading runs in threads.

    The methods that take the name of a loaded model raise UnknownPath.
    """

    def __init__(
        self,
        *,
        verify: Callable[[Path], EngineArchive],
        model_of: Callable[[EngineArchive], Model],
        settings: Settings,
        metrics: ServerMetrics,
        log: FailureLog,
        free_mib: Callable[[], float | None] = free_mib,
    ) -> None:
        """`verify` and `model_of` run in a thread.

        `verify` raises ArchiveRefused, `model_of` what a broken tokenizer makes its library raise;
        each may lack memory.
        """
        self._verify, self._model_of, self._free_mib = verify, model_of, free_mib
        self._settings, self._metrics, self._log = settings, metrics, log
        self._models: dict[str, LoadedModel] = {}
        self._reserved: dict[str, float] = {}
        """MiB that are reserved, by the name of a model that is being loaded or unloaded."""

    def __len__(self) -> int:
        return len(self._models)

    async def load(self, name: str, url: str) -> None:
        """Load the archive at a path and warm its engine up; other models are not affected.

        Raises Conflict, OutOfMemory, RequestFault.
        """
        if name in self._models:
            raise Conflict(f"Model {name!r} is loaded already.")
        if name in self._reserved:
            raise Conflict(f"Model {name!r} is being loaded, or unloaded, already.")
        self._reserved[name] = 0.0
        loading = asyncio.ensure_future(self._load(name, url))
        loading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(loading)

    def page(self, token: str | None, limit: int) -> tuple[list[LoadedModel], str | None]:
        """Return a page of models by name, and the next page's token: that page's first name."""
        names = sorted(name for name in self._models if token is None or name >= token)
        following = names[limit] if len(names) > limit else None
        return [self._models[name] for name in names[:limit]], following

    def entry(self, name: str) -> LoadedModel:
        model = self._models.get(name)
        if model is None:
            raise UnknownPath(f"Model {name[:60]!r} is not loaded; POST /models loads it.")
        return model

    def plane(self, name: str) -> DataPlane:
        return self.entry(name).plane

    async def unload(self, name: str) -> None:
        """Refuse new requests, wait for running ones, then free the memory."""
        model = self.entry(name)
        del self._models[name]
        model.plane.drain()
        self._reserved[name] = 0.0
        await asyncio.shield(asyncio.ensure_future(self._end(model)))

    async def close(self) -> None:
        """Unload every model; what does not end in time is left to the end of the process."""
        ends = asyncio.gather(*map(self.unload, list(self._models)), return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(ends, LAST_SECONDS)

    async def _load(self, name: str, url: str) -> None:
        """Load a model, even if its client leaves: the thread that loads cannot be stopped."""
        try:
            self._models[name] = await self._load_model(name, url)
        except ArchiveRefused as fault:
            self._report("load_refused", fault, name, 400)
            raise RequestFault(str(fault)) from fault
        except RequestFault as fault:
            self._report("load_refused", fault, name, fault.status)
            raise
        except BaseException as fault:
            if not is_memory_shortage(fault):
                raise
            self._report("load_out_of_memory", fault, name, 507)
            raise OutOfMemory(
                f"Model {name!r} does not fit the memory that is left; unload others first."
            ) from fault
        finally:
            del self._reserved[name]

    async def _load_model(self, name: str, url: str) -> LoadedModel:
        archive = await asyncio.to_thread(self._verify, _folder(url))
        self._reserve(name, archive.manifest.host_memory_mib)
        model, engine, costs = await asyncio.to_thread(self._warm_engine, archive)
        plane = data_plane_of(model, self._settings)
        try:
            engine.warm_up_inline()
            count_truncated(plane, model, self._metrics, name=name)
            observer = BatchMetrics(self._metrics, name, log=self._log)
            backend = model_batcher(model, engine, costs, self._settings, observer)
        except BaseException:
            engine.close()
            raise
        plane.open(backend)
        return LoadedModel(name=name, url=url, engine=engine, backend=backend, plane=plane)

    def _reserve(self, name: str, mib: float) -> None:
        """Reserve memory; what other loads have reserved is not free."""
        free = self._free_mib()
        left = None if free is None else free - sum(self._reserved.values())
        if left is not None and mib > left:
            raise OutOfMemory(
                f"Model {name!r} takes {mib:.0f} MiB and {max(0.0, left):.0f} MiB are left; "
                "unload others first."
            )
        self._reserved[name] = mib

    def _warm_engine(self, archive: EngineArchive) -> tuple[Model, Engine, Costs]:
        """Read the tokenizer, load the engine and warm it up, in a thread.

        Raises ArchiveRefused, RequestFault, and what a lack of memory raises.
        """
        try:
            model = self._model_of(archive)
        except BaseException as fault:  # a panic in a library of Rust is no Exception
            if is_memory_shortage(fault):
                raise
            reason = first_line(fault)
            raise ArchiveRefused(
                f"Refused: the tokenizer cannot be loaded ({reason}); build the engine again."
            ) from fault
        engine = None
        try:
            engine = model.load()
            return model, engine, engine.warm_up()
        except BaseException as fault:
            if engine is not None:
                engine.close()
            if isinstance(fault, RequestFault) or is_memory_shortage(fault):
                raise
            raise RequestFault(
                f"The engine {archive.manifest.engine_file} cannot be loaded: "
                f"{first_line(fault)[:300]}"
            ) from fault

    def _report(self, event: str, fault: BaseException, name: str, status: int) -> None:
        with suppress(MemoryError):  # the answer matters more
            self._log.report(event, fault, stage="load", level="warning", status=status, model=name)

    async def _end(self, model: LoadedModel) -> None:
        """Unload a model, even if its client leaves."""
        try:
            await model.plane.drained()
            await model.backend.drained()
            model.backend.close()
            await asyncio.to_thread(model.engine.close)
        finally:
            del self._reserved[model.name]
            self._metrics.forget_model(model.name)


def _folder(url: str) -> Path:
    """Return the directory that a url names. Raises RequestFault."""
    path = Path(url.removeprefix("file://"))
    if not path.is_absolute() or not path.is_dir():
        raise RequestFault(
            f'"url" is {url[:200]!r}; it must be the directory of an unpacked archive, such as '
            "/opt/ml/models/NAME/model."
        )
    return path
