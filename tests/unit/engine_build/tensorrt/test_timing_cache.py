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


def test_nearest_stores_cache_is_fetched(stores, cache, tmp_path):
    assert not cache.fetch() and cache.sha256 is None
    put(stores[1], b"far", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"far"
    put(stores[0], b"near", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"near"


def test_written_cache_reaches_no_store_before_it_is_uploaded(stores, cache, tmp_path):
    put(stores[0], b"old", tmp_path)
    cache.fetch()
    with cache.path.open("r+b") as file:
        file.write(b"new")
    assert stores[0].read(NAME) == b"old"
    cache.upload()
    assert [store.read(NAME) for store in stores] == [b"new", b"new"]


def test_unchanged_cache_is_not_written_again(stores, cache, tmp_path):
    put(stores[0], b"same", tmp_path)
    cache.fetch()
    cache.upload()
    assert stores[1].read(NAME) is None


@pytest.mark.parametrize("other", [{"tensorrt": "10.16.1.12"}, {"gpu": "NVIDIA L4"}])
def test_other_builds_and_gpus_have_their_own(stores, tmp_path, other):
    put(stores[0], b"another's", tmp_path)
    assert not timing_cache(tmp_path, stores, **other).fetch()


def test_store_that_does_not_answer_stops_nothing(tmp_path):
    stream = io.StringIO()
    cache = timing_cache(tmp_path, (Unreachable(tmp_path),), stream=stream)
    assert not cache.fetch()
    cache.path.write_bytes(b"new")
    cache.upload()
    assert stream.getvalue().count("cannot be reached") == 2
