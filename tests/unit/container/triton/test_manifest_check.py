"""The check of an archive inside Triton: digests, lengths, warm-up sizes, and the runtime."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from onboarding.manifest import ProfileRecord, RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import (
    ARITHMETIC,
    CARRIED,
    EMBEDDER,
    write_archive,
)


def carried_module(name):
    """A file as an archive carries it: no package around it."""
    spec = importlib.util.spec_from_file_location(name, CARRIED / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


manifest_check = carried_module("manifest_check")


PROFILES = (
    ProfileRecord(batch=(1, 8, 64), sequence=(8, 16, 32)),
    ProfileRecord(batch=(1, 1, 4), sequence=(8, 64, 128)),
)


@pytest.mark.parametrize(
    ("tiny", "changes", "sizes"),
    [
        (
            EMBEDDER,
            {"optimization_profiles": PROFILES},
            ((1, 8), (8, 16), (32, 32), (1, 64), (4, 128)),
        ),
        (EMBEDDER, {"warm_up": False}, ()),
        (ARITHMETIC, {}, ((1, None), (8, None), (32, None))),
    ],
)
def test_warm_up_sizes_are_those_of_the_profiles(tiny, changes, sizes, tmp_path):
    write_archive(tmp_path, tiny, **changes)
    assert manifest_check.warm_up_sizes(manifest_check.read_manifest(tmp_path, None)) == sizes


def test_lengths_are_the_profiles_sizes_and_powers_of_two_between():
    profiles = [{"sequence": [16, 100, 256]}, {"sequence": [8, 32, 64]}]
    lengths = manifest_check.sequence_buckets({"optimization_profiles": profiles})
    assert lengths == (8, 16, 32, 64, 100, 128, 256)
    assert manifest_check.sequence_buckets({"optimization_profiles": [{"sequence": None}]}) == ()


@pytest.mark.parametrize(
    ("wanted", "version"),
    [(same, same) for same in ("10.16", "10.16.1", "10.16.1.11")] + [("10.9.0.34", "10.16.1.34")],
)
def test_version_of_tensorrt_is_as_precise_as_the_wanted_one(wanted, version):
    libraries = {"libnvinfer.so.10": SimpleNamespace(getInferLibVersion=lambda: 101601)}
    assert manifest_check.running_tensorrt(wanted, libraries.__getitem__) == version


def test_version_of_absent_tensorrt_is_not_known():
    assert manifest_check.running_tensorrt("999.1.2.3") is None


@pytest.mark.parametrize(
    ("version", "capability", "sentence"),
    [
        (
            "10.16.0.11",
            "8.6",
            "the engine was made for tensorrt 10.16.1.11, this server runs tensorrt 10.16.0.11",
        ),
        (
            "10.16.1.11",
            "8.9",
            "the engine was made for compute capability 8.6, this server runs 8.9",
        ),
    ],
)
def test_refuses_a_foreign_tensorrt_or_gpu(version, capability, sentence, tmp_path):
    runtime = RuntimeIdentity(name="tensorrt", version="10.16.1.11")
    write_archive(tmp_path, runtime=runtime, compute_capability="8.6")
    manifest = manifest_check.read_manifest(tmp_path, None)
    manifest_check.refuse_foreign_runtime(manifest, "tensorrt", "10.16.1.11", "8.6")
    manifest_check.refuse_foreign_runtime(manifest, "tensorrt", "10.16.1.11", None)
    with pytest.raises(manifest_check.Refused, match=sentence):
        manifest_check.refuse_foreign_runtime(manifest, "tensorrt", version, capability)
