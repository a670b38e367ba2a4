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


PORTABLE_PLAN = {"runtime": tensorrt(), "compute_capability": "8.6", "plan": plan(PORTABLE)}
OTHER_LEVEL = "--hardwareCompatibilityLevel=sameComputeCapability"


def of_build(version, build=None):
    """The fields of a plan for compute capability 9.0."""
    record = None if build is None else plan(build=build)
    return {"runtime": tensorrt(version), "compute_capability": "9.0", "plan": record}


@pytest.mark.parametrize(
    ("fields", "running"),
    [
        *(({"compute_capability": one}, gpu(one)) for one in ("8.6", "9.0")),
        ({"compute_capability": "cpu"}, gpu("9.0")),
        (of_build("11.0.0"), gpu("9.0")),
        (of_build("11.0.0", "11.0.0.4"), gpu("9.0")),
        (of_build("11.0.0.4", "11.0.0.4"), gpu("9.0")),
        # The wheel of TensorRT 10.6.0.26 says 10.6.0.
        (of_build("10.6.0.26", "10.6.0.26"), gpu("9.0", "10.6.0")),
        *((PORTABLE_PLAN, gpu(capability)) for capability in ("8.0", "8.6", "9.0", "12.0")),
    ],
)
def test_engine_is_taken_by_a_machine_that_runs_it(tmp_path, fields, running):
    manifest = write_archive(tmp_path, **fields)
    archive = verify(tmp_path, running=running)
    assert archive.manifest == manifest and not archive.runs_host_code


@pytest.mark.parametrize(
    ("fields", "running", "sentence"),
    [
        (
            {"runtime": RuntimeIdentity(name="onnxruntime", version="1.30.0")},
            CPU_ONLY,
            "made for onnxruntime 1.30.0, this server runs onnxruntime",
        ),
        ({"compute_capability": "8.6"}, CPU_ONLY, r"capability 8\.6, this server runs cpu"),
        (
            of_build("11.0.0", "11.0.0.4"),
            CPU_ONLY,
            r"tensorrt 11\.0\.0\.4, this server runs onnxruntime \S+ \(there is no NVIDIA GPU\)",
        ),
        *(
            (of_build(built, built), gpu("9.0", runs), f"tensorrt {built}, .*tensorrt {runs};")
            for built, runs in (
                ("10.6.0.26", "10.6.1"),
                ("11.0.0.3", "11.0.0.4"),
                ("11.0.0.4", "11.0.1"),
            )
        ),
        (PORTABLE_PLAN, gpu("7.5"), r"capability 8\.6, this server runs 7\.5"),
        *(
            (PORTABLE_PLAN | {"plan": record}, gpu("8.9"), r"capability 8\.6, .* runs 8\.9")
            for record in (plan(), plan(OTHER_LEVEL))
        ),
    ],
)
def test_refuses_an_engine_of_another_machine(tmp_path, fields, running, sentence):
    write_archive(tmp_path, **fields)
    assert_refused(tmp_path, sentence, running=running)


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
