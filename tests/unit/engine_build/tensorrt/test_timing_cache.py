"""Timing caches beside the engines."""

from __future__ import annotations

import io

import pytest

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.store import FolderStore
from engine_build.tensorrt.compilation import TimingCache
from onboarding.names import timing_cache_path

NAME = timing_cache_path("10.16.1.11", "NVIDIA A10G")


class Unreachable(FolderStore):
    """A store that does not answer."""

    def read(self, name):
        raise PublishFailed("s3://bucket cannot be reached")

    def upload(self, path, name, *, only_if_absent=False):
        raise PublishFailed("s3://bucket cannot be reached")


@pytest.fixture
def stores(tmp_path):
    return FolderStore(tmp_path / "near"), FolderStore(tmp_path / "far")


@pytest.fixture
def cache(stores, tmp_path):
    return timing_cache(tmp_path, stores)


def timing_cache(tmp_path, stores, tensorrt="10.16.1.11", gpu="NVIDIA A10G", stream=None):
    log = Log(io.StringIO() if stream is None else stream)
    return TimingCache(stores, tensorrt, gpu, tmp_path / "timing.cache", log)


def put(store, data, tmp_path):
    (tmp_path / "put").write_bytes(data)
    store.upload(tmp_path / "put", NAME)


def test_nearest_stores_cache_is_fetched_and_reaches_all_of_them_once_it_is_uploaded(
    stores, cache, tmp_path
):
    assert not cache.fetch() and cache.sha256 is None
    put(stores[1], b"far", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"far"
    cache.upload()
    assert stores[0].read(NAME) is None  # unchanged, so it is not written again
    put(stores[0], b"near", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"near"
    with cache.path.open("r+b") as file:
        file.write(b"anew")
    assert stores[0].read(NAME) == b"near"
    cache.upload()
    assert [store.read(NAME) for store in stores] == [b"anew", b"anew"]
    for other in ({"tensorrt": "10.16.1.12"}, {"gpu": "NVIDIA L4"}):
        assert not timing_cache(tmp_path, stores, **other).fetch()


def test_store_that_does_not_answer_stops_nothing(tmp_path):
    stream = io.StringIO()
    cache = timing_cache(tmp_path, (Unreachable(tmp_path),), stream=stream)
    assert not cache.fetch()
    cache.path.write_bytes(b"new")
    cache.upload()
    assert stream.getvalue().count("cannot be reached") == 2
