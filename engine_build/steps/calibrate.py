"""The calibrate step of TensorRT before 11: the calibration cache of an `int8` network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.networks.network_store import Network
from engine_build.order import Order
from engine_build.quantization.calibration_cache import (
    CACHE_NAME,
    ENTROPY,
    CalibrationCache,
    cache_path,
    check_calibration,
    parse_cache,
    read_cache,
    version_digits,
)
from engine_build.quantization.calibrator import MISSING
from engine_build.runner import Command, Ended
from engine_build.samples.encoder import Encoder
from engine_build.samples.feed import Feed
from engine_build.shop import Shop
from engine_build.store import Store

TIMEOUT_SECONDS = 3600


def calibrate_cache(shop: Shop, network: Network, encoder: Encoder) -> Path:
    """Find or make the cache's file; `network` is the float one.

    Batches have the shape that the first profile is tuned for, filled with real values by
    `Encoder.shaped`, because TensorRT counts padding like any other token: on MiniLM's 24 inputs of
    MatMuls at 16 x 64, padded sentences move the 99.99 % quantile by more than 15 % in 13 tensors,
    tokens set side by side in 5. What does not fit a batch is left out.

    Raises InputRefused and NetworkRefused.
    """
    check_calibration(shop.order)
    known = _known_cache(shop)
    if known is not None:
        return known
    order = shop.order
    path = shop.work.scratch("calibration-cache") / CACHE_NAME
    folder = shop.work.scratch("calibration-feeds")
    intent = (
        f"{len(order.calibration)} samples in batches of {order.opt_shape} through TensorRT "
        f"{order.platform.tensorrt}"
    )
    with shop.log.step("calibrate", intent):
        save_feeds(calibration_batches(order, encoder), folder)
        ended = shop.runner.run(calibrate_command(network.path, folder, path))
        cache = _written_cache(ended, path)
    shop.log.line(f"  {len(cache.entries)} tensors have a scale")
    name = cache_path(order)
    shop.kept.upload(path, name)
    return shop.kept.path(name)


def calibrate_command(network: Path, feeds: Path, cache: Path) -> Command:
    """Return the child process that calibrates."""
    module = "engine_build.quantization.calibrator"
    argv = (sys.executable, "-m", module, str(network), str(feeds), str(cache))
    return Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS)


def calibration_batches(order: Order, encoder: Encoder) -> Iterable[Feed]:
    """Yield the calibration samples, all batches in one shape."""
    values, shape = order.calibration.values, order.opt_shape
    for begin in range(0, len(values), shape.batch):
        yield encoder.shaped(values[begin : begin + shape.batch], shape)


def save_feeds(feeds: Iterable[Feed], folder: Path) -> None:
    """Write one .npz a batch, in order."""
    for number, feed in enumerate(feeds):
        arrays: dict[str, Any] = dict(feed)
        np.savez(folder / f"{number:06}.npz", **arrays)


def _written_cache(ended: Ended, path: Path) -> CalibrationCache:
    if ended.code == MISSING:
        raise InputRefused(
            "the Python bindings of TensorRT or CUDA are not on this machine, and a calibration "
            "cache needs both; build it in the GPU builder image, as `roundhouse build` does."
        )
    reason = _failure(ended)
    if reason is not None or not path.is_file():
        raise NetworkRefused(
            f"TensorRT gives no calibration cache: {reason or 'it wrote none'}; "
            "the log has its output."
        )
    return read_cache(path)


def _failure(ended: Ended) -> str | None:
    try:
        reason: str | None = json.loads(ended.output.strip().splitlines()[-1])["reason"]
        return reason
    except (IndexError, KeyError, TypeError, ValueError):
        how = (
            f"was killed by signal {-ended.code}"
            if ended.code < 0
            else f"ended with code {ended.code}"
        )
        last = (ended.errors.strip().splitlines() or ["no error output"])[-1]
        return f"the process {how} ({last})"


def _known_cache(shop: Shop) -> Path | None:
    """Copy a cache that this TensorRT takes into the work folder's store."""
    name = cache_path(shop.order)
    for store in shop.stores:
        if not _is_usable(shop, store, name):
            continue
        if store is not shop.kept:
            copy = shop.work.scratch("calibration-cache") / CACHE_NAME
            store.download(name, copy)
            shop.kept.upload(copy, name)
        shop.log.line(f"  calibration cache {name} is reused from {store.place}")
        return shop.kept.path(name)
    return None


def _is_usable(shop: Shop, store: Store, name: str) -> bool:
    data = store.read(name)
    if data is None:
        return False
    try:
        cache = parse_cache(data, f"{store.place}/{name}")
    except InputRefused as error:
        shop.log.line(f"  {error}")
        return False
    version = version_digits(str(shop.order.platform.tensorrt))
    if (cache.version, cache.algorithm) == (version, ENTROPY):
        return True
    shop.log.line(
        f"  calibration cache {name} is of TensorRT {cache.version}, {cache.algorithm}; "
        f"it is made anew for {version}"
    )
    return False
