"""One archive of several compute capabilities.

What it holds, that its digests chain, and where it cannot be written.
"""

from __future__ import annotations

import hashlib
import io
import json

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.combine import DEFAULT_FILE, combine_archives, main
from onboarding.combined_manifest import CombinedManifest
from onboarding.manifest import (
    MANIFEST_NAME,
    Manifest,
)
from onboarding.model_spec import ServingSpec
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.packaging.archives import (
    ENGINE,
    TOKENIZER,
    published,
    spoiled,
    unpacked,
    without,
)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_archive_holds_an_engine_for_each_capability_and_the_rest_once(two, tmp_path):
    combine_archives(two, tmp_path / "out.tar.gz")
    assert sorted(unpacked(tmp_path / "out.tar.gz")) == sorted([
        "embedder/config.pbtxt", "embedder/1/ensemble.txt", f"{ENGINE}/config.pbtxt",
        f"{ENGINE}/1/model_86.plan", f"{ENGINE}/1/model_89.plan", f"{TOKENIZER}/config.pbtxt",
        *(f"{TOKENIZER}/1/{name}" for name in ("model.py", "manifest_check.py", "tokenizer.json")),
        "manifest.json", "manifest-8.6.json", "manifest-8.9.json",
    ])  # fmt: skip


def test_configuration_names_a_file_for_each_capability_and_no_default(two, tmp_path):
    combine_archives(two, tmp_path / "out.tar.gz")
    before = unpacked(two[0])[f"{ENGINE}/config.pbtxt"].decode()
    found = unpacked(tmp_path / "out.tar.gz")[f"{ENGINE}/config.pbtxt"].decode()
    entries = "".join(
        f'cc_model_filenames {{\n  key: "{key}"\n  value: "{value}"\n}}\n'
        for key, value in (("8.6", "model_86.plan"), ("8.9", "model_89.plan"))
    )
    assert found == before.replace(DEFAULT_FILE, entries) != before


def test_digests_chain_from_the_pinned_one_to_every_published_file(two, tmp_path):
    written = combine_archives(two, tmp_path / "out.tar.gz")
    held = unpacked(tmp_path / "out.tar.gz")
    assert digest(held[MANIFEST_NAME]) == written.manifest.sha256()
    manifest = CombinedManifest.from_bytes(held.pop(MANIFEST_NAME))
    assert {name: digest(data) for name, data in held.items()} == manifest.files
    for path in two:
        source = unpacked(path)
        one = Manifest.from_bytes(source[MANIFEST_NAME])
        engine = manifest.engines[one.compute_capability]
        assert held[engine.manifest] == source[MANIFEST_NAME]
        assert (engine.engine_key, manifest.files[engine.engine_file]) == (
            one.engine_key,
            one.files[one.engine_file],
        )
        carried = set(one.files) - {
            one.engine_file,
            f"{ENGINE}/config.pbtxt",
        }
        assert {name: manifest.files[name] for name in carried} == {
            name: one.files[name] for name in carried
        }


def test_bytes_follow_from_the_archives_alone_in_any_order(two, tmp_path):
    first = combine_archives(two, tmp_path / "one.tar.gz")
    again = combine_archives(tuple(reversed(two)), tmp_path / "two.tar.gz")
    assert (
        first == again
        and (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    )


def test_archives_that_refuse_long_texts_stay_so_together(tmp_path):
    shown = golden.served(serving=ServingSpec(auto_truncate=False))
    paths = [
        published(tmp_path, capability, shown=shown, auto_truncate=False)
        for capability in ("8.6", "8.9")
    ]
    assert combine_archives(paths, tmp_path / "out.tar.gz").manifest.auto_truncate is False
    held = unpacked(tmp_path / "out.tar.gz")
    assert b'"auto_truncate": false' in held[MANIFEST_NAME]
    carried = {"model.py", "manifest_check.py"}
    assert {
        name.removeprefix(f"{TOKENIZER}/1/") for name in held if name.endswith(".py")
    } == carried


def test_tensors_are_the_plans_alone(tmp_path):
    shown = golden.served(**golden.VISION)
    paths = [published(tmp_path, capability, shown=shown) for capability in ("8.0", "12.0", "9.0")]
    written = combine_archives(paths, tmp_path / "out.tar.gz")
    assert [name for name in unpacked(tmp_path / "out.tar.gz") if name.endswith(".plan")] == [
        "vision/1/model_120.plan", "vision/1/model_80.plan", "vision/1/model_90.plan",
    ]  # fmt: skip
    assert (
        written.manifest.compute_capability == "8.0, 9.0, 12.0"
        and written.manifest.tokenizer_file is None
    )


def test_command_says_what_was_written_and_what_to_pin(two, tmp_path):
    said, failed = io.StringIO(), io.StringIO()
    assert main([*map(str, two), "--out", str(tmp_path / "out.tar.gz")], said, failed) == 0
    manifest = unpacked(tmp_path / "out.tar.gz")[MANIFEST_NAME]
    assert "embedder on triton-26.05, compute capability 8.6, 8.9" in said.getvalue()
    assert f"ROUNDHOUSE_MANIFEST_SHA256={digest(manifest)}" in said.getvalue()


def test_refuses_an_archive_whose_tokenizer_reads_only_one_engine(two, tmp_path):
    name = f"{TOKENIZER}/1/manifest_check.py"
    archives = [
        spoiled(path, folder, **{name: b"", MANIFEST_NAME: without(path, name)})
        for path, folder in zip(two, (tmp_path / "a", tmp_path / "b"), strict=True)
    ]
    with pytest.raises(InputRefused, match=r"tokenizer has no manifest_check\.py"):
        combine_archives(archives, tmp_path / "out.tar.gz")


def test_refuses_a_place_that_cannot_be_written(two, tmp_path):
    with pytest.raises(
        InputRefused, match=r"--out .* cannot be written: No such file or directory"
    ):
        combine_archives(two, tmp_path / "none" / "out.tar.gz")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputRefused, match=r"cannot be written: Is a directory"):
        combine_archives(two, tmp_path / "folder")
    assert not list(tmp_path.glob("*.part"))


def test_one_engine_manifest_is_not_taken_for_a_combined_one(two):
    manifest = json.loads(unpacked(two[0])[MANIFEST_NAME])
    with pytest.raises(ValueError, match="format_version"):
        CombinedManifest.model_validate_json(json.dumps(manifest))
