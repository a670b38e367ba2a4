"""One archive of several compute capabilities.

What it holds, that its digests chain, and what may not be mixed.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from engine_build.errors import InputRefused
from engine_build.packaging.archive import archive, model_repository
from engine_build.packaging.combine import DEFAULT_FILE, combine_archives, main
from engine_build.packaging.repository import repository
from onboarding.combined_manifest import CombinedManifest
from onboarding.manifest import (
    MANIFEST_NAME,
    BuilderRecord,
    Manifest,
    ProfileRecord,
    RuntimeIdentity,
)
from onboarding.model_spec import DynamicBatchingSpec, ServingSpec
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.stand_ins import ROOT

ENGINE, TOKENIZER = "embedder_engine", "embedder_tokenizer"


def published(
    folder: Path,
    capability: str,
    *,
    tokenizer: bytes = b"{}",
    shown=None,
    is_cpu=False,
    **changes: object,
) -> Path:
    """An engine archive as a build publishes it; `changes` replace fields of its manifest."""
    shown = golden.served() if shown is None else shown
    place = folder / capability
    place.mkdir(parents=True)
    (place / "plan").write_bytes(b"plan for " + capability.encode())
    (place / "tokenizer.json").write_bytes(tokenizer)
    token_file = place / "tokenizer.json" if shown.is_text else None
    laid = repository(shown, place / "plan", token_file, is_cpu=is_cpu, code_roots=(ROOT,))
    files = model_repository(place / "archive", laid.files)
    fields = {
        "model": shown.model,
        "task": shown.task,
        "engine_key": capability.replace(".", "") * 10,
        "network_keys": {"float": "1"},
        "platform": "triton-26.05",
        "runtime": RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
        "compute_capability": capability,
        "requested_precision": "auto",
        "precision": "fp16",
        "decision": "faster",
        "engine_file": laid.engine_file,
        "tokenizer_file": laid.tokenizer_file,
        "inputs": shown.client_inputs,
        "outputs": shown.client_outputs,
        "optimization_profiles": shown.profiles,
        "max_batch_size": shown.max_batch_size,
        "files": files,
        "accuracy": (),
        "compile_checks": (),
        "benchmark": (),
        "load_seconds": 1.0,
        "host_memory_mib": 1.0,
        "builder": BuilderRecord(machine="x86_64", built_at="2026-01-01T00:00:00Z"),
    }
    archive(place / "archive", Manifest(**(fields | changes)), place / "model.tar.gz")
    return place / "model.tar.gz"


def unpacked(path: Path) -> dict[str, bytes]:
    """Every file of an archive."""
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


@pytest.fixture
def two(tmp_path):
    return published(tmp_path, "8.9", precision="int8"), published(tmp_path, "8.6")


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
        ({"auto_truncate": False}, "disagree on whether long texts are cut: True and False"),
        ({"network_keys": {"float": "2"}}, "disagree on the network"),
        ({"tokenizer": b"[]"}, "tokenizer.json differs between .*: another tokenizer"),
        ({"optimization_profiles": TWICE}, "disagree on the optimization profiles"),
        ({"max_batch_size": 16}, "disagree on the largest batch: 32 and 16"),
        (
            {"shown": golden.served(serving=OTHER_BATCHING)},
            r"config.pbtxt differs between .*: other dynamic batching",
        ),
        ({"shown": golden.served(**golden.CLASSIFIER)}, "disagree on the model"),
    ],
)
def test_refuses_to_mix(changes, words, tmp_path):
    first = published(tmp_path, "8.6")
    with pytest.raises(InputRefused, match=words):
        combine_archives((first, published(tmp_path, "8.9", **changes)), tmp_path / "out.tar.gz")
    assert not (tmp_path / "out.tar.gz").exists()


def test_refuses_one_archive_two_of_one_capability_and_a_cpu_engine(two, tmp_path):
    with pytest.raises(InputRefused, match="1 archive is given; give two or more"):
        combine_archives(two[:1], tmp_path / "out.tar.gz")
    with pytest.raises(InputRefused, match=r"are both for compute capability 8\.9"):
        combine_archives((two[0], published(tmp_path / "again", "8.9")), tmp_path / "out.tar.gz")
    twin = published(
        tmp_path, "cpu", is_cpu=True, runtime=RuntimeIdentity(name="onnxruntime", version="1.31.1")
    )
    with pytest.raises(InputRefused, match="holds a CPU engine"):
        combine_archives((two[0], twin), tmp_path / "out.tar.gz")


def test_refuses_an_archive_whose_tokenizer_reads_only_one_engine(two, tmp_path):
    name = f"{TOKENIZER}/1/manifest_check.py"
    archives = [
        spoiled(path, folder, **{name: b"", MANIFEST_NAME: without(path, name)})
        for path, folder in zip(two, (tmp_path / "a", tmp_path / "b"), strict=True)
    ]
    with pytest.raises(InputRefused, match=r"tokenizer has no manifest_check\.py"):
        combine_archives(archives, tmp_path / "out.tar.gz")


def without(path: Path, name: str) -> bytes:
    """The manifest of an archive, one file less."""
    manifest = Manifest.from_bytes(unpacked(path)[MANIFEST_NAME])
    files = {file: digest for file, digest in manifest.files.items() if file != name}
    return manifest.model_copy(update={"files": files}).to_bytes()


def spoiled(path: Path, folder: Path, **files: bytes) -> Path:
    """The archive with other files in it; an empty one is left out."""
    folder.mkdir(exist_ok=True)
    out = folder / "spoiled.tar.gz"
    with tarfile.open(out, "w:gz") as tar:
        for name, data in (unpacked(path) | files).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if data:
                tar.addfile(member, io.BytesIO(data))
    return out


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {f"{ENGINE}/1/model.plan": b"other"},
            "model.plan is not the file that its manifest names",
        ),
        ({f"{ENGINE}/1/model.plan": b""}, "model.plan is in the manifest but not in its archive"),
        ({"more": b"more"}, "more is in the archive but not in its manifest"),
        ({MANIFEST_NAME: b""}, "has no manifest.json"),
        ({MANIFEST_NAME: b"{}"}, "is not the manifest of one engine"),
    ],
)
def test_refuses_an_archive_that_is_not_as_published(files, words, two, tmp_path):
    with pytest.raises(InputRefused, match=words):
        combine_archives((two[0], spoiled(two[1], tmp_path, **files)), tmp_path / "out.tar.gz")


def test_refuses_an_archive_that_is_cut_short_or_not_there_or_of_several(two, tmp_path):
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(two[0].read_bytes()[:300])
    with pytest.raises(InputRefused, match="cannot be unpacked"):
        combine_archives((cut, two[1]), tmp_path / "out.tar.gz")
    failed = io.StringIO()
    assert (
        main(
            [str(two[0]), str(tmp_path / "none.tar.gz"), "--out", str(tmp_path / "x")],
            io.StringIO(),
            failed,
        )
        == 1
    )
    assert "none.tar.gz is not there" in failed.getvalue()
    combine_archives(two, tmp_path / "out.tar.gz")
    with pytest.raises(InputRefused, match="is not the manifest of one engine"):
        combine_archives((tmp_path / "out.tar.gz", two[0]), tmp_path / "x")


def test_refuses_a_folder_and_names_the_archive_in_it(two, tmp_path):
    failed = io.StringIO()
    assert (
        main(
            [str(two[0].parent), str(two[1]), "--out", str(tmp_path / "out.tar.gz")],
            io.StringIO(),
            failed,
        )
        == 1
    )
    assert (
        failed.getvalue()
        == f"FAILED: {two[0].parent} is a folder; give the engine archive itself, such as "
        f"{two[0]}.\n"
    )


def test_refuses_an_archive_that_may_not_be_read(two, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(two[0]))

    monkeypatch.setattr("tarfile.open", refuse)
    with pytest.raises(InputRefused, match="Permission denied; see to permissions and room there"):
        combine_archives(two, tmp_path / "out.tar.gz")


def test_refuses_an_archive_with_any_byte_after_its_header_changed(two, tmp_path):
    whole, header = two[0].read_bytes(), 10
    changed = tmp_path / "changed.tar.gz"
    for place in range(header, len(whole), max(1, len(whole) // 40)):
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(InputRefused, match="publish the engine again"):
            combine_archives((changed, two[1]), tmp_path / "out.tar.gz")


def test_refuses_an_archive_with_a_changed_file(two, tmp_path):
    with tarfile.open(two[0]) as tar:
        tar.extractall(tmp_path / "files", filter="data")
    plan = next((tmp_path / "files").rglob("*.plan"))
    plan.write_bytes(plan.read_bytes() + b"more")
    with tarfile.open(tmp_path / "changed.tar.gz", "w:gz") as tar:
        for path in sorted(path for path in (tmp_path / "files").rglob("*") if path.is_file()):
            tar.add(path, path.relative_to(tmp_path / "files"))
    with pytest.raises(InputRefused, match=r"model.plan is not the file that its manifest names"):
        combine_archives((tmp_path / "changed.tar.gz", two[1]), tmp_path / "out.tar.gz")


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
