"""A server refuses an archive that is not exactly the one that was built for it."""

from __future__ import annotations

import json

import pytest

from container.archive import ArchiveRefused, SupportedRuntimes, verify_archive
from onboarding.manifest import PlanRecord, ProcessingRecord, RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import MODEL, ONNXRUNTIME, write_archive

RUNTIME = RuntimeIdentity(name="onnxruntime", version=ONNXRUNTIME)
CPU_ONLY = SupportedRuntimes(
    pairs=((RUNTIME, "cpu"),), absences={"tensorrt": "there is no NVIDIA GPU"}
)
PORTABLE = "--hardwareCompatibilityLevel=ampere+"


def tensorrt(version="11.0.0"):
    return RuntimeIdentity(name="tensorrt", version=version)


def verify(root, *, sha256=None, running=CPU_ONLY):
    return verify_archive(root, running=running, manifest_sha256=sha256)


def gpu(capability, build="11.0.0.4"):
    runtimes = ((RUNTIME, "cpu"), (RUNTIME, capability), (tensorrt(build), capability))
    return SupportedRuntimes(pairs=runtimes)


def plan(*flags, build="11.0.0.4"):
    command = " ".join(("trtexec", *flags))
    return PlanRecord(tensorrt=build, layers=1, int8_layers=0, command=command)


def write_plan(root, record, *, capability="9.0", version="11.0.0"):
    write_archive(root, runtime=tensorrt(version), compute_capability=capability, plan=record)


def assert_refused(root, sentence, **options):
    with pytest.raises(ArchiveRefused, match=sentence):
        verify(root, **options)


@pytest.mark.parametrize("part", ["preprocessing", "postprocessing"])
def test_refuses_a_users_code_which_triton_runs(part, tmp_path):
    file = f"{MODEL}_{part}/1/user_code.py"
    record = ProcessingRecord(file=file, inputs=(), outputs=(), timeout_ms=1)
    write_archive(tmp_path, **{part: record})
    assert_refused(tmp_path, "has preprocessing or postprocessing, which Triton runs")


def test_refuses_manifest_with_an_unknown_field(tmp_path):
    manifest = json.loads(write_archive(tmp_path).to_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"extra": 1}))
    assert_refused(tmp_path, r"cannot be read \(extra: ")


def test_refuses_manifest_that_the_deployment_does_not_pin(tmp_path):
    write_archive(tmp_path)
    assert_refused(tmp_path, f"the deployment pins {'f' * 64}", sha256="f" * 64)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        *(
            (
                {"runtime": runtime},
                rf"made for {runtime.name} {runtime.version}, this server runs onnxruntime",
            )
            for runtime in (RuntimeIdentity(name="onnxruntime", version="1.30.0"), tensorrt("10.1"))
        ),
        ({"compute_capability": "8.6"}, r"compute capability 8\.6, this server runs cpu"),
        (
            {"runtime": tensorrt(), "compute_capability": "8.6", "plan": plan()},
            r"11\.0\.0\.4, this server runs onnxruntime \S+ \(there is no NVIDIA GPU\)",
        ),
    ],
)
def test_refuses_an_engine_of_another_machine(tmp_path, fields, sentence):
    write_archive(tmp_path, **fields)
    assert_refused(tmp_path, sentence)


@pytest.mark.parametrize(
    ("capability", "running"), [("8.6", gpu("8.6")), ("9.0", gpu("9.0")), ("cpu", gpu("9.0"))]
)
def test_onnx_engine_is_taken_where_its_device_is(tmp_path, capability, running):
    write_archive(tmp_path, compute_capability=capability)
    assert verify(tmp_path, running=running).manifest.compute_capability == capability


@pytest.mark.parametrize(
    ("version", "record"), [("11.0.0", None), ("11.0.0", plan()), ("11.0.0.4", plan())]
)
def test_plan_is_taken_by_the_build_that_made_it(tmp_path, version, record):
    write_plan(tmp_path, record, version=version)
    assert not verify(tmp_path, running=gpu("9.0")).runs_host_code


def test_plan_is_taken_by_a_library_that_names_fewer_numbers(tmp_path):
    """The wheel of TensorRT 10.6.0.26 says 10.6.0."""
    write_plan(tmp_path, plan(build="10.6.0.26"), version="10.6.0.26")
    assert verify(tmp_path, running=gpu("9.0", "10.6.0")).manifest.plan is not None


@pytest.mark.parametrize(
    ("built", "runs"), [("10.6.0.26", "10.6.1"), ("11.0.0.3", "11.0.0.4"), ("11.0.0.4", "11.0.1")]
)
def test_refuses_a_plan_of_another_build(tmp_path, built, runs):
    write_plan(tmp_path, plan(build=built), version=built)
    sentence = rf"made for tensorrt {built}, this server runs .*tensorrt {runs};"
    assert_refused(tmp_path, sentence, running=gpu("9.0", runs))


@pytest.mark.parametrize("capability", ["8.0", "8.6", "9.0", "12.0"])
def test_portable_plan_is_taken_by_newer_gpus(tmp_path, capability):
    write_plan(tmp_path, plan(PORTABLE), capability="8.6")
    assert verify(tmp_path, running=gpu(capability)).manifest.plan == plan(PORTABLE)


@pytest.mark.parametrize(
    ("capability", "flags"),
    [
        ("7.5", [PORTABLE]),
        ("8.9", []),
        ("8.9", ["--hardwareCompatibilityLevel=sameComputeCapability"]),
    ],
)
def test_refuses_a_plan_that_is_not_portable_to_this_gpu(tmp_path, capability, flags):
    write_plan(tmp_path, plan(*flags), capability="8.6")
    sentence = rf"compute capability 8\.6, this server runs {capability}"
    assert_refused(tmp_path, sentence, running=gpu(capability))


PLUGINS = {"runtime": tensorrt(), "compute_capability": "9.0", "plan": plan()}


def test_libraries_of_a_plan_are_files_of_its_archive(tmp_path):
    library = tmp_path / "libscale.so"
    library.write_bytes(b"library")
    write_archive(tmp_path, **PLUGINS, plugins=("libscale.so",))
    assert verify(tmp_path, running=gpu("9.0")).plugins == (library,)
    library.write_bytes(b"another")
    assert_refused(tmp_path, r"libscale\.so has sha256", running=gpu("9.0"))


@pytest.mark.parametrize("name", ["libother.so", "../libscale.so"])
def test_refuses_a_library_that_is_no_file_of_the_archive(tmp_path, name):
    (tmp_path.parent / "libscale.so").write_bytes(b"library")
    write_archive(tmp_path, **PLUGINS, plugins=(name,))
    sentence = f"{name} is named in manifest.json but is not in the archive"
    assert_refused(tmp_path, sentence, running=gpu("9.0"))
