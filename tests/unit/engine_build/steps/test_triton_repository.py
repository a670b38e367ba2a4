"""The build of a Triton repository of a user's own: a tree or a wheel -> an archive."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import zipfile

import pytest

from engine_build.build import build
from engine_build.errors import InputRefused, SourceFault
from engine_build.store import FolderStore
from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import lock_text, write_lock_entry
from onboarding.manifest import TensorRecord
from onboarding.names import engine_archive_path
from onboarding.repository_spec import repository_models
from tests.unit.engine_build.stand_ins import ROOT, StandInRunner, context
from tests.unit.engine_build.tiny import write_tree

pytestmark = pytest.mark.unit
FOLDER = ROOT / "tests/fixtures/triton_repository"
PIN = "mine==1.0"


def model(**source):
    return {
        "name": "mood",
        "task": "tensors",
        "source": {"triton_repository": source},
        "endpoint": {"instance_type": "ml.c7i.large"},
    }


def tree(root, change=None):
    shutil.copytree(FOLDER, root / "models/mood")
    if change is not None:
        change(root / "models/mood")
    write_tree(root, model(folder="models/mood", sha256=checkpoint_sha256(root / "models/mood")))
    return root


def wheel_tree(root, folder=FOLDER):
    root.mkdir()
    path = root / "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                wheel.write(file, f"mine/repository/{file.relative_to(folder)}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_tree(root, model(python_package=PIN, path="mine/repository", sha256=digest))
    return path


def run(root, out, wheel=None):
    store = FolderStore(root / "store")
    tools = context(root, out, store=store, runner=StandInRunner(wheel), model="mood")
    with tools.work:
        return build(tools), store, tools


def test_archive_holds_the_repository_and_says_that_nothing_was_measured(tmp_path):
    result, store, _ = run(tree(tmp_path / "tree"), tmp_path / "out")
    manifest = result.entry.manifest
    assert result.status == "built"
    assert manifest.inputs == (TensorRecord(name="x", datatype="FP32", shape=(-1, 4)),)
    assert manifest.outputs == (TensorRecord(name="label", datatype="BYTES", shape=(-1, 1)),)
    assert repository_models(manifest) == ("label", "mood", "other", "scale")
    assert (manifest.runtime.name, manifest.runtime.version) == ("triton", "24.10")
    assert manifest.max_batch_size == 8 and manifest.accuracy_records == ()
    path = write_lock_entry(tmp_path, "mood", result.entry)
    assert "accuracy: not measured\n" in path.read_text()
    with tarfile.open(store.path(engine_archive_path(manifest.engine_key))) as archive:
        names = set(archive.getnames())
        model_file = archive.extractfile("scale/1/model.py")
        assert model_file is not None
        assert model_file.read() == (FOLDER / "scale/1/model.py").read_bytes()
    assert names == {*manifest.files, "manifest.json"}
    assert run(tmp_path / "tree", tmp_path / "again")[0].status == "known"


def test_archive_is_the_same_of_a_folder_and_of_a_wheel_but_for_its_key(tmp_path):
    of_folder, _, _ = run(tree(tmp_path / "tree"), tmp_path / "out")
    wheel = wheel_tree(tmp_path / "wheel")
    of_wheel, _, _ = run(tmp_path / "wheel", tmp_path / "out-wheel", wheel)
    first, second = of_folder.entry.manifest, of_wheel.entry.manifest
    assert first.files == second.files and first.engine_key != second.engine_key
    assert "accuracy" in lock_text(of_wheel.entry)


def test_refuses_every_fault_of_a_wheel_at_once(tmp_path, capsys):
    shutil.copytree(FOLDER, tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken/label")
    (tmp_path / "broken/scale/config.pbtxt").write_text('backend: "onnxruntime"\ninput { }\n')
    wheel = wheel_tree(tmp_path / "wheel", tmp_path / "broken")
    with pytest.raises(InputRefused, match="5 faults stand above, the first: "):
        run(tmp_path / "wheel", tmp_path / "out", wheel)


def test_refuses_a_wheel_of_other_bytes(tmp_path):
    wheel = wheel_tree(tmp_path / "wheel")
    wheel.write_bytes(wheel.read_bytes() + b" ")
    with pytest.raises(SourceFault, match="sha256"):
        run(tmp_path / "wheel", tmp_path / "out", wheel)


def test_refuses_plans_without_the_gpu_and_the_build_that_made_them(tmp_path):
    def with_plan(folder):
        (folder / "engine/1").mkdir(parents=True)
        (folder / "engine/1/model.plan").write_text("a plan")
        text = (folder / "scale/config.pbtxt").read_text()
        text = text.replace('backend: "python"', 'platform: "tensorrt_plan"')
        (folder / "engine/config.pbtxt").write_text(text)

    with pytest.raises(InputRefused, match=r"no backend tensorrt|TensorRT plan"):
        run(tree(tmp_path / "tree", with_plan), tmp_path / "out")
