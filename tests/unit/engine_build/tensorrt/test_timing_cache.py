"""Timing caches beside the engines."""

from __future__ import annotations

import io

import pytest

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.store import FolderStore
from engine_build.tensorrt.timing_cache import TimingCache
from onboarding.names import timing_cache_path

NAME = timing_cache_path("10.16.1.11", "NVIDIA A10G")


class Silent(FolderStore):
    """A store that does not answer."""

    def read(self, name):
        raise PublishFailed("s3://bucket cannot be reached")

    def upload(self, path, name, *, only_if_absent=False):
        raise PublishFailed("s3://bucket cannot be reached")


@pytest.fixture
def stores(tmp_path):
    return FolderStore(tmp_path / "near"), FolderStore(tmp_path / "far")


def cache(tmp_path, stores, tensorrt="10.16.1.11", gpu="NVIDIA A10G"):
    stream = io.StringIO()
    return TimingCache(stores, tensorrt, gpu, tmp_path / "timing.cache", Log(stream)), stream


def put(store, data, tmp_path):
    (tmp_path / "put").write_bytes(data)
    store.upload(tmp_path / "put", NAME)


def test_nearest_stores_cache_is_brought(stores, tmp_path):
    put(stores[1], b"far", tmp_path)
    made, _ = cache(tmp_path, stores)
    assert made.fetch() and made.path.read_bytes() == b"far"
    put(stores[0], b"near", tmp_path)
    assert made.fetch() and made.path.read_bytes() == b"near"


def test_without_a_cache_none_is_brought(stores, tmp_path):
    made, _ = cache(tmp_path, stores)
    assert not made.fetch() and made.sha256 is None


def test_what_trtexec_writes_reaches_no_store_before_it_is_kept(stores, tmp_path):
    put(stores[0], b"old", tmp_path)
    made, _ = cache(tmp_path, stores)
    made.fetch()
    with made.path.open("r+b") as file:
        file.write(b"new")
    assert stores[0].read(NAME) == b"old"
    made.upload()
    assert [store.read(NAME) for store in stores] == [b"new", b"new"]


def test_unchanged_cache_is_not_written_again(stores, tmp_path):
    put(stores[0], b"same", tmp_path)
    made, _ = cache(tmp_path, stores)
    made.fetch()
    made.upload()
    assert stores[1].read(NAME) is None


@pytest.mark.parametrize("other", [{"tensorrt": "10.16.1.12"}, {"gpu": "NVIDIA L4"}])
def test_other_builds_and_gpus_have_their_own(stores, tmp_path, other):
    put(stores[0], b"theirs", tmp_path)
    made, _ = cache(tmp_path, stores, **other)
    assert not made.fetch()


def test_store_that_does_not_answer_stops_nothing(tmp_path):
    made, stream = cache(tmp_path, (Silent(tmp_path),))
    assert not made.fetch()
    made.path.write_bytes(b"new")
    made.upload()
    assert stream.getvalue().count("cannot be reached") == 2


def test_dropped_cache_is_gone(stores, tmp_path):
    put(stores[0], b"bad", tmp_path)
    made, _ = cache(tmp_path, stores)
    made.fetch()
    made.discard()
    assert not made.path.exists()
