"""The calibrate step of TensorRT before 11: the cache of an `int8` network, found again or made on
this machine's GPU.
"""

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
from engine_build.quantization.calibrate import MISSING
from engine_build.quantization.calibration_cache import (
    ENTROPY,
    CalibrationCache,
    cache_of,
    read_cache,
    version_digits,
)
from engine_build.runner import Command, Ended
from engine_build.samples.encoder import Encoder
from engine_build.samples.feed import Feed
from engine_build.shop import Shop
from engine_build.store import Store
from onboarding.names import network_path

CACHE_NAME = "calibration.cache"
TIMEOUT_SECONDS = 3600


def calibration_cache(shop: Shop, network: Network, encoder: Encoder) -> Path:
    """The cache's file; `network` is the float one. Raises InputRefused and NetworkRefused.

    Batches have the shape that the first profile is tuned for, filled with real values by
    `Encoder.shaped`, because TensorRT
    counts padding like any other token: on MiniLM's 24 inputs of MatMuls at 16 x 64, padded
    sentences move the 99.99 %
    quantile by more than 15 % in 13 tensors, tokens set side by side in 5. What does not fit a
    batch is left out.
    """
    check_calibration(shop.order)
    found = _kept(shop)
    if found is not None:
        return found
    path = shop.work.scratch("calibration-cache") / CACHE_NAME
    _make(shop, network, encoder, path)
    name = cache_path(shop.order)
    shop.kept.upload(path, name)
    return shop.kept.path(name)


def cache_path(order: Order) -> str:
    """Object key of an order's cache: beside its `int8` network, so that every GPU shares it."""
    return network_path(order.network_keys["int8"], CACHE_NAME)


def check_calibration(order: Order) -> None:
    """Refuses, before anything is fetched, what no calibration cache can be made or used for."""
    name, platform = order.model.name, order.platform
    if order.is_cpu:
        raise InputRefused(
            f"quantization calibration-cache of {name} is for GPUs, but the engine is for a CPU; say `quantization: explicit`."
        )
    if platform.trtexec_dialect != 10 or platform.tensorrt is None:
        raise InputRefused(
            f"quantization calibration-cache of {name} needs TensorRT 10, but platform {platform.name} has "
            f"{platform.tensorrt or 'none'}: TensorRT 11 has no calibrators; say `quantization: explicit`, or turn an old cache "
            "into a Q/DQ network with `python -m engine_build.quantization.migration`."
        )
    calibration = order.model.engine.calibration
    if calibration is not None and calibration.method != "entropy":
        raise InputRefused(
            f"calibration method {calibration.method} of {name} is not for quantization calibration-cache, whose caches trtexec "
            "takes from the entropy calibrator alone; allowed: entropy, or `quantization: explicit`."
        )


def calibrate_command(network: Path, feeds: Path, cache: Path) -> Command:
    """The child process that calibrates."""
    module = "engine_build.quantization.calibrate"
    argv = (sys.executable, "-m", module, str(network), str(feeds), str(cache))
    return Command(argv=argv, timeout_seconds=TIMEOUT_SECONDS)


def _make(shop: Shop, network: Network, encoder: Encoder, path: Path) -> None:
    order = shop.order
    folder = shop.work.scratch("calibration-feeds")
    intent = f"{len(order.calibration)} samples in batches of {order.opt_shape} through TensorRT {order.platform.tensorrt}"
    with shop.log.step("calibrate", intent):
        save_feeds(batches(order, encoder), folder)
        ended = shop.runner.run(calibrate_command(network.path, folder, path))
        cache = _made(ended, path)
    shop.log.line(f"  {len(cache.entries)} tensors have a scale")


def batches(order: Order, encoder: Encoder) -> Iterable[Feed]:
    """The calibration samples, all batches in one shape."""
    values, shape = order.calibration.values, order.opt_shape
    for begin in range(0, len(values), shape.batch):
        yield encoder.shaped(values[begin : begin + shape.batch], shape)


def save_feeds(feeds: Iterable[Feed], folder: Path) -> None:
    """Writes one .npz a batch, in order."""
    for number, feed in enumerate(feeds):
        arrays: dict[str, Any] = dict(feed)
        np.savez(folder / f"{number:06}.npz", **arrays)


def _made(ended: Ended, path: Path) -> CalibrationCache:
    if ended.code == MISSING:
        raise InputRefused(
            "the Python bindings of TensorRT or CUDA are not on this machine, and a calibration cache needs both; build it in "
            "the GPU builder image, as `roundhouse build` does."
        )
    reason = _reason(ended)
    if reason is not None or not path.is_file():
        raise NetworkRefused(
            f"TensorRT gives no calibration cache: {reason or 'it wrote none'}; the log has its words."
        )
    return read_cache(path)


def _reason(ended: Ended) -> str | None:
    try:
        said: str | None = json.loads(ended.output.strip().splitlines()[-1])["reason"]
        return said
    except (IndexError, KeyError, TypeError, ValueError):
        how = (
            f"was killed by signal {-ended.code}"
            if ended.code < 0
            else f"ended with code {ended.code}"
        )
        return (
            f"the process {how} ({(ended.errors.strip().splitlines() or ['it said nothing'])[-1]})"
        )


def _kept(shop: Shop) -> Path | None:
    """A cache that this TensorRT takes, copied into the work folder's store."""
    name = cache_path(shop.order)
    for store in shop.stores:
        if not _usable(shop, store, name):
            continue
        if store is not shop.kept:
            copy = shop.work.scratch("calibration-cache") / CACHE_NAME
            store.download(name, copy)
            shop.kept.upload(copy, name)
        shop.log.line(f"  calibration cache {name} is reused from {store.place}")
        return shop.kept.path(name)
    return None


def _usable(shop: Shop, store: Store, name: str) -> bool:
    data = store.read(name)
    if data is None:
        return False
    try:
        cache = cache_of(data, f"{store.place}/{name}")
    except InputRefused as error:
        shop.log.line(f"  {error}")
        return False
    wanted = version_digits(str(shop.order.platform.tensorrt))
    if (cache.version, cache.algorithm) == (wanted, ENTROPY):
        return True
    shop.log.line(
        f"  calibration cache {name} is of TensorRT {cache.version}, {cache.algorithm}; it is made anew for {wanted}"
    )
    return False
