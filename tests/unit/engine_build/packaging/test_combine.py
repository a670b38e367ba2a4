"""One archive of several compute capabilities: its files, its digests, and what it refuses."""

from __future__ import annotations

import hashlib
import io

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.combine import DEFAULT_FILE, combine_archives, main
from onboarding.combined_manifest import CombinedManifest
from onboarding.manifest import MANIFEST_NAME, Manifest, ProfileRecord, Prompts, RuntimeIdentity
from onboarding.serving_spec import DynamicBatchingSpec, ServingSpec
from onboarding.signature import ENVELOPE_NAME
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.packaging.archives import (
    ENGINE,
    TOKENIZER,
    manifest_without,
    publish_test_archive,
    read_files,
    replace_files,
)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.tar.gz"


def test_archive_holds_an_engine_for_each_capability_and_the_rest_once(two, out):
    combine_archives(two, out)
    assert set(read_files(out)) == {
        *("embedder/config.pbtxt", "embedder/1/ensemble.txt", f"{ENGINE}/config.pbtxt"),
        *(f"{ENGINE}/1/model_86.plan", f"{ENGINE}/1/model_89.plan", f"{TOKENIZER}/config.pbtxt"),
        *(f"{TOKENIZER}/1/{name}" for name in ("model.py", "manifest_check.py", "heads.py")),
        f"{TOKENIZER}/1/tokenizer.json",
        *("manifest.json", "manifest-8.6.json", "manifest-8.9.json"),
    }


def test_configuration_names_a_file_for_each_capability_and_no_default(two, out):
    combine_archives(two, out)
    before = read_files(two[0])[f"{ENGINE}/config.pbtxt"].decode()
    after = read_files(out)[f"{ENGINE}/config.pbtxt"].decode()
    entries = "".join(
        f'cc_model_filenames {{\n  key: "{key}"\n  value: "{value}"\n}}\n'
        for key, value in (("8.6", "model_86.plan"), ("8.9", "model_89.plan"))
    )
    assert after == before.replace(DEFAULT_FILE, entries) != before


def test_digests_chain_from_the_pinned_one_to_every_published_file(two, out):
    pinned = combine_archives(two, out).sha256()
    files = read_files(out)
    assert digest(files[MANIFEST_NAME]) == pinned
    manifest = CombinedManifest.from_bytes(files.pop(MANIFEST_NAME))
    assert {name: digest(data) for name, data in files.items()} == manifest.files
    for path in two:
        source = read_files(path)[MANIFEST_NAME]
        one = Manifest.from_bytes(source)
        engine = manifest.engines[one.compute_capability]
        assert files[engine.manifest] == source
        assert engine.engine_key == one.engine_key
        assert manifest.files[engine.engine_file] == one.files[one.engine_file]
        shared = set(one.files) - {one.engine_file, f"{ENGINE}/config.pbtxt"}
        assert all(manifest.files[name] == one.files[name] for name in shared)


def test_bytes_follow_from_the_archives_alone_in_any_order(two, out, tmp_path):
    first = combine_archives(two, out)
    again = combine_archives(two[::-1], tmp_path / "again.tar.gz")
    assert first == again and out.read_bytes() == (tmp_path / "again.tar.gz").read_bytes()


def test_archives_that_refuse_long_texts_stay_so_together(tmp_path, out):
    shown = golden.served_model(serving=ServingSpec(auto_truncate=False))
    paths = [
        publish_test_archive(tmp_path, capability, shown=shown, auto_truncate=False)
        for capability in ("8.6", "8.9")
    ]
    assert combine_archives(paths, out).auto_truncate is False
    assert b'"auto_truncate": false' in read_files(out)[MANIFEST_NAME]


def test_tensors_are_the_plans_alone(tmp_path, out):
    shown = golden.served_model(**golden.VISION)
    paths = [
        publish_test_archive(tmp_path, capability, shown=shown)
        for capability in ("8.0", "12.0", "9.0")
    ]
    manifest = combine_archives(paths, out)
    plans = [name for name in read_files(out) if name.endswith(".plan")]
    assert plans == [f"vision/1/model_{number}.plan" for number in (120, 80, 90)]
    assert manifest.compute_capability == "8.0, 9.0, 12.0" and manifest.tokenizer_file is None


def test_command_says_what_was_written_and_what_to_pin(two, out):
    output = io.StringIO()
    assert main([*map(str, two), "--out", str(out)], output, io.StringIO()) == 0
    manifest = digest(read_files(out)[MANIFEST_NAME])
    assert "embedder on triton-26.05, compute capability 8.6, 8.9" in output.getvalue()
    assert f"MB, sha256 {digest(out.read_bytes())}" in output.getvalue()
    assert f"ROUNDHOUSE_MANIFEST_SHA256={manifest}" in output.getvalue()
    assert "not signed: endpoints that name `trusted_signers` refuse it" in output.getvalue()


def test_signatures_of_single_engines_are_left_out(two, out, tmp_path):
    signed = [
        replace_files(path, tmp_path / f"signed-{index}", **{ENVELOPE_NAME: b"{}"})
        for index, path in enumerate(two)
    ]
    assert combine_archives(signed, out) == combine_archives(two, tmp_path / "unsigned.tar.gz")
    assert out.read_bytes() == (tmp_path / "unsigned.tar.gz").read_bytes()


OTHER_BATCHING = ServingSpec(
    dynamic_batching=DynamicBatchingSpec(preferred_batch_sizes=(8,), max_queue_delay_us=50)
)
TWICE = (ProfileRecord(batch=(1, 8, 64), sequence=(16, 128, 256)),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"platform": "triton-25.04"},
            "disagree on the serving platform: triton-26.05 and triton-25.04",
        ),
        (
            {"runtime": RuntimeIdentity(name="tensorrt", version="10.9.0.34")},
            "disagree on the TensorRT build: .*10.16.1.11.*10.9.0.34",
        ),
        ({"model": "other"}, "disagree on the model: embedder and other"),
        ({"prompts": Prompts(texts={"query": "find: "})}, "disagree on the prompts: None and"),
        ({"auto_truncate": False}, "disagree on whether long texts are cut: True and False"),
        ({"network_keys": {"float": "2"}}, "disagree on the network"),
        ({"tokenizer": b"[]"}, "tokenizer.json differs between .*: another tokenizer"),
        ({"optimization_profiles": TWICE}, "disagree on the optimization profiles"),
        ({"max_batch_size": 16}, "disagree on the largest batch: 32 and 16"),
        (
            {"shown": golden.served_model(serving=OTHER_BATCHING)},
            r"config.pbtxt differs between .*: other dynamic batching",
        ),
        ({"shown": golden.served_model(**golden.CLASSIFIER)}, "disagree on the model"),
        (
            {"is_cpu": True, "runtime": RuntimeIdentity(name="onnxruntime", version="1.31.1")},
            "holds a CPU engine",
        ),
    ],
)
def test_refuses_to_mix(changes, words, tmp_path, out):
    capability = "cpu" if "is_cpu" in changes else "8.9"
    paths = (
        publish_test_archive(tmp_path, "8.6"),
        publish_test_archive(tmp_path, capability, **changes),
    )
    with pytest.raises(InputRefused, match=words):
        combine_archives(paths, out)
    assert not out.exists()


def test_refuses_one_archive_and_two_of_one_capability(two, tmp_path, out):
    with pytest.raises(InputRefused, match="1 archive is given; give two or more"):
        combine_archives(two[:1], out)
    with pytest.raises(InputRefused, match=r"are both for compute capability 8\.9"):
        combine_archives((two[0], publish_test_archive(tmp_path / "again", "8.9")), out)


def test_refuses_an_archive_whose_tokenizer_reads_only_one_engine(two, tmp_path, out):
    name = f"{TOKENIZER}/1/manifest_check.py"
    archives = [
        replace_files(
            path,
            tmp_path / path.parent.name,
            **{name: b"", MANIFEST_NAME: manifest_without(path, name)},
        )
        for path in two
    ]
    with pytest.raises(InputRefused, match=r"tokenizer has no manifest_check\.py"):
        combine_archives(archives, out)


@pytest.mark.parametrize(
    ("path", "reason"),
    [("none/out.tar.gz", "No such file or directory"), ("8.6", "Is a directory")],
)
def test_refuses_an_output_that_cannot_be_written(two, tmp_path, path, reason):
    with pytest.raises(InputRefused, match=f"--out .* cannot be written: {reason}"):
        combine_archives(two, tmp_path / path)
    assert not list(tmp_path.glob("*.part"))


def test_one_engine_manifest_is_not_taken_for_a_combined_one(two):
    with pytest.raises(ValueError, match="format_version"):
        CombinedManifest.from_bytes(read_files(two[0])[MANIFEST_NAME])
