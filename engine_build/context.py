"""What the steps of an engine share: its request, its tools, and where its parts lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine_build.onnx_graph.network_store import Networks
from engine_build.request import BuildRequest
from engine_build.store import FolderStore, Store
from engine_build.workload import Tools
from onboarding.plan_source import PlanSource
from onboarding.plugin_spec import PluginSpec


def plugin_path(plugin: PluginSpec) -> str:
    """Return where the work folder keeps a library of custom operators."""
    return f"plugins/{plugin.sha256}/{plugin.name}"


@dataclass(frozen=True, kw_only=True)
class BuildContext(Tools):
    """The tools of one engine's build."""

    request: BuildRequest
    code_root: Path
    """The source tree that `container/` lies in."""
    now: Callable[[], str]
    """The time in ISO 8601, UTC."""
    plan_source: PlanSource | None = None
    """The engine whose plan is packaged; None: one is compiled."""

    @property
    def work_store(self) -> FolderStore:
        """The work folder's own finished parts."""
        return self.work.store

    @property
    def stores(self) -> tuple[Store, ...]:
        """Where finished parts are looked for, the nearest first."""
        return (self.work_store,) if self.publish_to is None else (self.work_store, self.publish_to)

    @property
    def destination(self) -> Store:
        """Where the engine lies in the end."""
        return self.work_store if self.publish_to is None else self.publish_to

    @property
    def plugins(self) -> tuple[Path, ...]:
        """Where the fetch step keeps the libraries of custom operators."""
        return tuple(map(self.work_store.path, map(plugin_path, self.request.plugins)))

    def networks(self) -> Networks:
        """The networks of this build."""
        return Networks(self.stores, self.work.scratch("networks"), self.log)
