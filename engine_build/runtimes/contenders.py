"""What a machine can run of some networks, plans and a source model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from container.tensorrt.bindings import tensorrt
from engine_build.runtimes.availability import Runtime, RuntimeName, has
from engine_build.runtimes.pytorch import Source, TorchModule

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_build.runtimes.holding import Running

MODULES: dict[RuntimeName, tuple[str, ...]] = {
    "onnxruntime": ("engine_build.runtimes.ort",),
    "onnxruntime CUDA": ("engine_build.runtimes.onnxruntime_bound",),
    "pytorch": (),
    "pytorch CUDA": (),
    "tensorrt": ("engine_build.tensorrt.network", "cuda.bindings.runtime"),
}
ON_CPU: tuple[RuntimeName, ...] = ("onnxruntime", "pytorch")


class Opening(Protocol):
    """Loads a network or plan."""

    def __call__(self, runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
        """`as_served`: as the servers load it, or as other work on the machine likes it better."""
        ...


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something that can be loaded."""

    runtime: RuntimeName
    precision: str
    load: Callable[[], Running]
    is_loaded: bool = False
    """True where `load` only hands over what somebody loaded before: what it takes to hold that is
    not measured.
    """


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What there is to run; networks and plans by the name of their precision."""

    networks: Mapping[str, Path] = field(default_factory=dict)
    plans: Mapping[str, Path] = field(default_factory=dict)
    source: Source | None = None


def contenders(offer: Offer, here: Sequence[Runtime]) -> tuple[Contender, ...]:
    """What this machine can run of it, the GPU's first."""
    found = [*_plans(offer), *_on_gpu(offer), *_on_cpu(offer)]
    return tuple(each for each in found if has(here, each.runtime))


def import_runtime(runtime: RuntimeName) -> None:
    """Imports a runtime's library, so that no engine's load time holds it: a process imports it
    once for all its engines.
    """
    for module in MODULES[runtime]:
        with suppress(ImportError):
            importlib.import_module(module)
    if runtime == "tensorrt":
        # By whichever name it has: one process cannot hold both.
        with suppress(ImportError):
            tensorrt()


def opened(runtime: RuntimeName, path: Path, *, as_served: bool = True) -> Running:
    """A network or plan in a runtime. Raises SourceFault, InputRefused and NetworkRefused."""
    if runtime == "tensorrt":
        from engine_build.tensorrt import network

        # Plans measured here were compiled here, so the code inside a version-compatible one is
        # ours.
        return network.opened(path, host_code=True)
    if runtime == "onnxruntime CUDA":
        from engine_build.runtimes.onnxruntime_bound import BoundNetwork

        return BoundNetwork(path)
    from engine_build.runtimes.ort import OrtNetwork

    return OrtNetwork(path, as_served=as_served)


def _plans(offer: Offer) -> list[Contender]:
    return [_opened("tensorrt", name, path) for name, path in offer.plans.items()]


def _on_gpu(offer: Offer) -> list[Contender]:
    networks = [_opened("onnxruntime CUDA", name, path) for name, path in offer.networks.items()]
    return networks + (
        [] if offer.source is None else [_torch(offer.source, "fp32"), _torch(offer.source, "fp16")]
    )


def _on_cpu(offer: Offer) -> list[Contender]:
    networks = [_opened("onnxruntime", name, path) for name, path in offer.networks.items()]
    return networks + ([] if offer.source is None else [_source(offer.source)])


def _opened(runtime: RuntimeName, name: str, path: Path) -> Contender:
    return Contender(runtime=runtime, precision=name, load=partial(opened, runtime, path))


def _torch(source: Source, precision: str) -> Contender:
    def load() -> TorchModule:
        return TorchModule(source.module, source.inputs, device="cuda", half=precision == "fp16")

    return Contender(runtime="pytorch CUDA", precision=precision, load=load)


def _source(source: Source) -> Contender:
    def load() -> Source:
        # Its weights were released after the export; asking for the module reads them again, here
        # and not in the first run.
        assert source.module is not None
        return source

    return Contender(runtime="pytorch", precision="fp32", load=load, is_loaded=True)
