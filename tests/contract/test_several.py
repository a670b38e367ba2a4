"""One archive with engines for several compute capabilities, inside Triton as far as no GPU goes.

The plan is stood in for.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from engine_build.packaging import archive as packing
from engine_build.packaging.archive import model_repository
from engine_build.packaging.combine import combine_archives
from engine_build.packaging.repository import repository
from engine_build.packaging.served import member
from onboarding.combined_manifest import CombinedManifest
from onboarding.manifest import MANIFEST_NAME, Manifest, RuntimeIdentity
from tests.contract.conftest import end_of, load, rows, serving
from tests.contract.model_config import parse_configuration
from tests.contract.requests import json_request
from tests.contract.test_ensemble import STAND_IN, on_a_cpu
from tests.fixtures.tiny_embedder.archive import EMBEDDER, HERE, REPOSITORY, digest, manifest_fields

MODEL = EMBEDDER.model
ENGINE = member(MODEL, "engine")
TEXTS = ("the cat sat on the mat", "a dog", "")
TRITONS = ("triton-sme", "triton-mme")
DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? %s : %s; return 0;
}
"""


def publish(folder: Path, capability: str) -> Path:
    """A GPU archive as a build publishes it; its plan is the float network."""
    layout = repository(
        EMBEDDER.served,
        HERE / "model.onnx",
        HERE / "tokenizer.json",
        runtime="tensorrt",
        code_roots=(REPOSITORY,),
    )
    root = folder / capability
    files = model_repository(root, layout.files)
    fields = manifest_fields(EMBEDDER, files) | {
        "compute_capability": capability,
        "runtime": RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
        "engine_file": layout.engine_file,
        "tokenizer_file": layout.tokenizer_file,
    }
    packing.archive(root, Manifest(**fields), folder / f"{capability}.tar.gz")
    return folder / f"{capability}.tar.gz"


@pytest.fixture(scope="module")
def combined(tmp_path_factory) -> Path:
    """The archive of 8.6 and 8.9, unpacked."""
    folder = tmp_path_factory.mktemp("several")
    combine_archives(
        [publish(folder, capability) for capability in ("8.6", "8.9")], folder / "out.tar.gz"
    )
    with tarfile.open(folder / "out.tar.gz") as tar:
        tar.extractall(folder / "model", filter="data")
    return folder / "model"


def with_stand_in(combined: Path, root: Path) -> Path:
    """A copy whose plans a CPU can run: another backend, and a manifest that says so."""
    shutil.copytree(combined, root)
    config = root / ENGINE / "config.pbtxt"
    config.write_text(on_a_cpu(config.read_text()))
    shutil.copy(STAND_IN, root / ENGINE / "1" / "model.py")
    manifest = CombinedManifest.from_bytes((root / MANIFEST_NAME).read_bytes())
    files = {
        path.relative_to(root).as_posix(): digest(path)
        for path in root.rglob("*")
        if path.is_file()
    }
    del files[MANIFEST_NAME]
    (root / MANIFEST_NAME).write_bytes(manifest.model_copy(update={"files": files}).to_bytes())
    return root


def driver(folder: Path, capability: str) -> Path:
    """A folder with a driver's library that knows nothing but its GPU's compute capability."""
    folder.mkdir()
    (folder / "driver.c").write_text(DRIVER % tuple(capability.split(".")))
    library = str(folder / "libcuda.so.1")
    subprocess.run(("gcc", "-shared", "-fPIC", "-o", library, str(folder / "driver.c")), check=True)
    return folder


def test_protobuf_sees_a_file_for_each_capability_and_no_default(combined):
    config = parse_configuration((combined / ENGINE / "config.pbtxt").read_text())
    assert dict(config.cc_model_filenames) == {"8.6": "model_86.plan", "8.9": "model_89.plan"}
    assert config.default_model_filename == "" and config.backend == "tensorrt"
    assert all(
        (combined / ENGINE / "1" / name).is_file() for name in config.cc_model_filenames.values()
    )
    assert not (combined / ENGINE / "1" / "model.plan").exists()


@pytest.mark.parametrize("kind", TRITONS)
def test_ensemble_of_several_engines_answers_as_one_does(kind, combined, launched, tmp_path):
    root = with_stand_in(combined, tmp_path / "model")
    with serving(kind, root, tmp_path / "server") as one:
        several, single = (
            rows(served.ask(json_request(TEXTS))) for served in (one, launched("triton-sme"))
        )
        assert np.allclose(several, single, atol=1e-6)


def test_refuses_a_changed_plan_of_any_capability(combined, tmp_path):
    root = with_stand_in(combined, tmp_path / "model")
    with (root / ENGINE / "1" / "model_89.plan").open("ab") as file:
        file.write(b"\0")
    status, log = end_of("triton-sme", root, tmp_path / "server")
    assert status != 0 and f"Refused: {ENGINE}/1/model_89.plan has sha256" in log


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for a driver's stand-in")
@pytest.mark.parametrize(
    ("capability", "status", "sentence"),
    [
        ("8.9", 200, ""),
        (
            "9.0",
            400,
            "the archive holds engines for compute capability 8.6 and 8.9, this server runs 9.0",
        ),
    ],
)
def test_driver_decides_whether_the_archive_is_for_this_gpu(
    capability, status, sentence, combined, archive, tmp_path
):
    variables = {"LD_LIBRARY_PATH": str(driver(tmp_path / "driver", capability))}
    first = with_stand_in(combined, tmp_path / "first" / "model")
    with serving("triton-mme", archive, tmp_path / "server", **variables) as one:
        answer = load(one.client, first, name="several", target="several/model.tar.gz")
        assert answer.status == status and sentence in answer.body.decode(), answer.body
