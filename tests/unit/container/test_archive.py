"""What a server does with an archive that is not exactly the one that was built for it.

One sentence and no engine.
"""

from __future__ import annotations

import json

import pytest

from container.archive import ArchiveRefused, SupportedRuntimes, verify_archive
from onboarding.manifest import PlanRecord, RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import MODEL, ONNXRUNTIME, write_archive

RUNTIME = RuntimeIdentity(name="onnxruntime", version=ONNXRUNTIME)
TENSORRT = RuntimeIdentity(name="tensorrt", version="11.0.0")
CPU_ONLY = SupportedRuntimes(
    pairs=((RUNTIME, "cpu"),), absences={"tensorrt": "there is no NVIDIA GPU"}
)


def verified(root, *, sha256=None, running=CPU_ONLY):
    return verify_archive(root, running=running, manifest_sha256=sha256)


def gpu(capability, *, tensorrt="11.0.0.4"):
    return SupportedRuntimes(
        pairs=(
            (RUNTIME, "cpu"),
            (RUNTIME, capability),
            (RuntimeIdentity(name="tensorrt", version=tensorrt), capability),
        )
    )


def plan(*flags, tensorrt="11.0.0.4"):
    return PlanRecord(
        tensorrt=tensorrt, layers=1, int8_layers=0, command=" ".join(("trtexec", *flags))
    )


def test_archive_is_taken_when_the_whole_chain_holds(tmp_path):
    manifest = write_archive(tmp_path)
    archive = verified(tmp_path, sha256=manifest.sha256())
    assert archive.manifest == manifest
    assert archive.engine.is_file()
    assert archive.tokenizer is not None and archive.tokenizer.is_file()


def test_archive_is_taken_with_python_caches_beside_the_model(tmp_path):
    write_archive(tmp_path)
    cache = tmp_path / MODEL / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"x")
    assert verified(tmp_path).manifest.model == MODEL


def test_refuses_archive_without_manifest(tmp_path):
    write_archive(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ArchiveRefused, match=r"manifest\.json is missing"):
        verified(tmp_path)


def test_refuses_manifest_that_the_deployment_does_not_pin(tmp_path):
    write_archive(tmp_path)
    with pytest.raises(ArchiveRefused, match=f"the deployment pins {'f' * 64}"):
        verified(tmp_path, sha256="f" * 64)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "\xff"])
def test_refuses_manifest_that_cannot_be_read(tmp_path, text):
    write_archive(tmp_path)
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(ArchiveRefused, match=r"manifest\.json cannot be read"):
        verified(tmp_path)


def test_refuses_manifest_with_an_unknown_field(tmp_path):
    manifest = json.loads(write_archive(tmp_path).to_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"extra": 1}))
    with pytest.raises(ArchiveRefused, match="extra"):
        verified(tmp_path)


def test_refuses_changed_file(tmp_path):
    write_archive(tmp_path)
    with (tmp_path / MODEL / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(
        ArchiveRefused, match=r"1/model\.onnx has sha256 .* publish the archive again"
    ):
        verified(tmp_path)


def test_refuses_missing_file(tmp_path):
    write_archive(tmp_path)
    (tmp_path / MODEL / "1" / "tokenizer.json").unlink()
    with pytest.raises(
        ArchiveRefused,
        match=r"1/tokenizer\.json is named in manifest\.json but is not in the archive",
    ):
        verified(tmp_path)


def test_refuses_added_file(tmp_path):
    write_archive(tmp_path)
    (tmp_path / MODEL / "1" / "libevil.so").write_bytes(b"x")
    with pytest.raises(ArchiveRefused, match=r"libevil\.so is in the archive but not named"):
        verified(tmp_path)


@pytest.mark.parametrize(
    "runtime",
    [
        RuntimeIdentity(name="onnxruntime", version="1.30.0"),
        RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
    ],
)
def test_refuses_foreign_runtime(tmp_path, runtime):
    write_archive(tmp_path, runtime=runtime)
    with pytest.raises(
        ArchiveRefused,
        match=rf"made for {runtime.name} {runtime.version}, this server runs onnxruntime",
    ):
        verified(tmp_path)


def test_refuses_foreign_compute_capability(tmp_path):
    write_archive(tmp_path, compute_capability="8.6")
    with pytest.raises(ArchiveRefused, match=r"compute capability 8\.6, this server runs cpu"):
        verified(tmp_path)


def test_refuses_a_plan_and_says_what_is_missing(tmp_path):
    write_archive(tmp_path, runtime=TENSORRT, compute_capability="8.6", plan=plan())
    with pytest.raises(
        ArchiveRefused,
        match=r"11\.0\.0\.4, this server runs onnxruntime \S+ \(there is no NVIDIA GPU\)",
    ):
        verified(tmp_path)


@pytest.mark.parametrize("capability", ["8.6", "9.0"])
def test_onnx_engine_of_a_gpu_is_taken_where_its_gpu_is(tmp_path, capability):
    write_archive(tmp_path, compute_capability=capability)
    assert verified(tmp_path, running=gpu(capability)).manifest.compute_capability == capability


def test_cpu_engine_is_taken_beside_a_gpu(tmp_path):
    write_archive(tmp_path)
    assert verified(tmp_path, running=gpu("9.0")).manifest.compute_capability == "cpu"


@pytest.mark.parametrize(
    ("wanted", "record"), [("11.0.0", None), ("11.0.0", plan()), ("11.0.0.4", plan())]
)
def test_plan_is_taken_by_the_build_that_made_it(tmp_path, wanted, record):
    write_archive(
        tmp_path,
        runtime=RuntimeIdentity(name="tensorrt", version=wanted),
        compute_capability="9.0",
        plan=record,
    )
    assert not verified(tmp_path, running=gpu("9.0")).runs_host_code


def test_refuses_a_plan_of_another_build_of_the_same_version(tmp_path):
    write_archive(
        tmp_path, runtime=TENSORRT, compute_capability="9.0", plan=plan(tensorrt="11.0.0.3")
    )
    with pytest.raises(
        ArchiveRefused,
        match=r"made for tensorrt 11\.0\.0\.3, this server runs .*tensorrt 11\.0\.0\.4",
    ):
        verified(tmp_path, running=gpu("9.0"))


@pytest.mark.parametrize("capability", ["8.0", "8.6", "9.0", "12.0"])
def test_portable_plan_is_taken_by_newer_gpus(tmp_path, capability):
    record = plan("--hardwareCompatibilityLevel=ampere+")
    write_archive(tmp_path, runtime=TENSORRT, compute_capability="8.6", plan=record)
    assert verified(tmp_path, running=gpu(capability)).manifest.plan == record


@pytest.mark.parametrize(
    ("capability", "flags"),
    [
        ("7.5", ["--hardwareCompatibilityLevel=ampere+"]),
        ("8.9", []),
        ("8.9", ["--hardwareCompatibilityLevel=sameComputeCapability"]),
    ],
)
def test_refuses_a_plan_that_is_not_portable_to_this_gpu(tmp_path, capability, flags):
    write_archive(tmp_path, runtime=TENSORRT, compute_capability="8.6", plan=plan(*flags))
    with pytest.raises(
        ArchiveRefused, match=rf"compute capability 8\.6, this server runs {capability}"
    ):
        verified(tmp_path, running=gpu(capability))


def test_version_compatible_plan_runs_its_own_code(tmp_path):
    write_archive(
        tmp_path,
        runtime=TENSORRT,
        compute_capability="9.0",
        plan=plan("--fp16", "--versionCompatible"),
    )
    assert verified(tmp_path, running=gpu("9.0")).runs_host_code
