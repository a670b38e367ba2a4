"""A plan in TensorRT's own runtime, with the surface of ort.OrtNetwork.

A plan refuses feeds below its smallest profile as well as above its largest. So a feed is filled
up: rows by repeating the last one, whose answers are dropped; tokens by zeros, which an attention
mask of zeros hides. A batch that is too large is cut.

The contexts are those of the server, whose names are all in the real bindings of 10.16 and 11.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from container.tensorrt.bindings import CudaRuntime, TensorRT, bindings
from container.tensorrt.context import ContextRunner
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault, NoBindings
from container.tensorrt.plan import (
    Plan,
    Profile,
    Range,
    ReadPlan,
    Shapes,
    allowed,
    taking,
    times,
)
from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed
from engine_build.errors import InputRefused, NetworkRefused

PLUGINS = "*.so*"
"""Files beside a plan that are libraries of its custom operators."""


@contextmanager
def faults_refuse_the_network() -> Iterator[None]:
    """Raises NetworkRefused for a DeviceFault, in the same words."""
    try:
        yield
    except DeviceFault as fault:
        raise NetworkRefused(str(fault)) from fault


def installed_bindings() -> tuple[Any, Any]:
    """TensorRT's and CUDA's modules. Raises InputRefused where plans cannot be judged."""
    try:
        return bindings()
    except NoBindings as fault:
        raise InputRefused(
            f"plans cannot be judged on this machine, whose Python has no {fault.module}; build "
            "in the GPU builder image."
        ) from fault


def load_plan(
    plan: Path, *, host_code: bool = False, read: ReadPlan = Path.read_bytes
) -> TensorrtNetwork:
    """A plan in this machine's TensorRT, with the plugins whose libraries lie beside it.

    Raises InputRefused where there is no TensorRT.
    """
    trt, cuda = installed_bindings()
    plugins = tuple(sorted(plan.parent.glob(PLUGINS)))
    options: dict[str, Any] = {"host_code": host_code, "plugins": plugins, "read": read}
    return TensorrtNetwork(plan, trt=trt, cuda=cuda, **options)


def split_feed(feed: Feed, profiles: Sequence[Profile]) -> Iterator[tuple[Feed, int]]:
    """The feed in parts that some profile takes, each with the number of its own rows.

    Raises InputRefused.
    """
    rows = len(next(iter(feed.values())))
    batches = [
        min(ranges.largest[0] for ranges in profile.values())
        for profile in profiles
        if _takes_rows(feed, profile)
    ]
    most = max(batches, default=rows)
    for begin in range(0, rows, most):
        part = {name: values[begin : begin + most] for name, values in feed.items()}
        yield fill_feed(part, profiles), min(most, rows - begin)


def fill_feed(feed: Feed, profiles: Sequence[Profile]) -> Feed:
    """The feed itself where a profile takes it, or else filled up to the smallest that does.

    Raises InputRefused.
    """
    if taking(_shapes(feed), profiles):
        return feed
    filled = [
        {name: _fill(values, profile[name], feed) for name, values in feed.items()}
        for profile in profiles
    ]
    fitting = [candidate for candidate in filled if taking(_shapes(candidate), profiles)]
    if not fitting:
        shapes = ", ".join(f"{name} {times(values.shape)}" for name, values in feed.items())
        raise InputRefused(
            f"no optimization profile of the plan takes {shapes}; allowed: {allowed(profiles)}."
        )
    return min(fitting, key=lambda candidate: sum(values.size for values in candidate.values()))


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in feed.items()}


def _takes_rows(feed: Feed, profile: Profile) -> bool:
    """Return True when the rows fit, however many there are."""
    shapes = {name: _fill(values[:1], profile[name], feed).shape for name, values in feed.items()}
    return all(
        ranges.takes((ranges.smallest[0], *shapes[name][1:])) for name, ranges in profile.items()
    )


def _fill(values: Array, ranges: Range, feed: Feed) -> Array:
    missing = [
        max(0, least - size) for least, size in zip(ranges.smallest, values.shape, strict=False)
    ]
    if values.ndim == 2 and missing[1] and ATTENTION_MASK in feed:
        values = np.pad(values, ((0, 0), (0, missing[1])))
    if missing and missing[0] and len(values):
        values = np.concatenate([values, np.repeat(values[-1:], missing[0], axis=0)])
    return values


class TensorrtNetwork:
    """A plan, loaded on the first GPU, and run by the contexts that serve it."""

    @faults_refuse_the_network()
    def __init__(
        self,
        plan: Path,
        *,
        trt: TensorRT,
        cuda: CudaRuntime,
        host_code: bool = False,
        plugins: Sequence[Path] = (),
        read: ReadPlan = Path.read_bytes,
    ) -> None:
        """`host_code` lets a version-compatible plan run the code inside it.

        Raises NetworkRefused.
        """
        self._device = Device(cuda)
        self._plan = Plan(plan, trt=trt, host_code=host_code, plugins=plugins, read=read)
        self.inputs, self.outputs = self._plan.inputs, self._plan.outputs
        self._any = self._context("any shapes", records=False)
        self._recorded: ContextRunner | None = None
        """Of the shapes of the last feed, from their second run on."""
        self._shapes: Shapes = {}

    @faults_refuse_the_network()
    def rows(self, feed: Feed) -> Array:
        """float32 [rows, values]: each output flattened by row, one beside the other.

        Raises InputRefused and NetworkRefused.
        """
        typed = {name: np.asarray(feed[name], dtype=self._plan.types[name]) for name in self.inputs}
        parts = [self._run(part)[:rows] for part, rows in split_feed(typed, self._plan.profiles)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def warm_up(self) -> None:
        """Run zeros of every profile's sizes, as servers do; the opt shape ends as a CUDA graph.

        Raises InputRefused and NetworkRefused.
        """
        for profile in self._plan.profiles:
            for size in ("smallest", "largest", "opt", "opt"):
                shapes = {name: getattr(ranges, size) for name, ranges in profile.items()}
                self.rows({name: np.zeros(shape, np.int8) for name, shape in shapes.items()})

    @faults_refuse_the_network()
    def close(self) -> None:
        """Gives the GPU's memory back, before the next plan is measured."""
        self._forget()
        self._any.close()
        self._plan.close()
        self._device.close()

    def _run(self, feed: Feed) -> Array:
        """Run kernel by kernel first, and as a CUDA graph once a shape is run again and again."""
        shapes, rows = _shapes(feed), len(next(iter(feed.values())))
        context = self._any
        if shapes != self._shapes:
            self._forget()
            self._shapes = shapes
        else:
            if self._recorded is None:
                self._recorded = self._context("recorded", records=True)
            context = self._recorded
        answers = context.run(feed, shapes, rows).values()
        flat: list[Array] = [answer.reshape(rows, -1).astype(np.float32) for answer in answers]
        return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)

    def _context(self, name: str, *, records: bool) -> ContextRunner:
        return ContextRunner(self._plan, self._device, name=name, records=records)

    def _forget(self) -> None:
        if self._recorded is not None:
            self._recorded.close()
        self._recorded, self._shapes = None, {}
