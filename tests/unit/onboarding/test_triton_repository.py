"""Triton repositories of a user's own: a tree of files -> faults with file, line and message."""

from __future__ import annotations

import shutil

import pytest
import yaml

from onboarding.checkpoint import checkpoint_sha256
from onboarding.data import __name__ as DATA
from onboarding.keys import repository_key
from onboarding.model_spec import RepositorySpec
from onboarding.platform import instance_types, serving_platforms
from onboarding.resolve import target
from onboarding.tree import read_tree
from onboarding.triton_repository import ConfigurationFault, read_configuration, read_repository
from onboarding.yaml_text import load_yaml
from tests.contract.model_config import PROTOBUF
from tests.unit.onboarding.trees import FIXTURES, tree_root

FOLDER = FIXTURES.parent / "triton_repository"
SHOWN = "models/mood"
FAULTS = yaml.safe_load((FIXTURES.parent / "triton_repository_faults.yaml").read_text())
PLAN = 'platform: "tensorrt_plan"\ninput { name: "x" data_type: TYPE_FP32 dims: 1 }\n'
PLAN += 'output { name: "y" data_type: TYPE_FP32 dims: 1 }\n'


@pytest.fixture
def repository(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "repository")
    return tmp_path / "repository"


def faults_of(folder):
    return [str(fault) for fault in read_repository(folder, SHOWN, "mood").faults]


@pytest.mark.parametrize("case", FAULTS)
def test_refuses_a_configuration_with_its_line(case, repository):
    path = repository / case["file"]
    text = path.read_text()
    assert case["old"] in text
    path.write_text(text.replace(case["old"], case["new"], 1))
    found = faults_of(repository)
    assert len(found) == len(case["says"]), found
    for fault, words in zip(found, case["says"], strict=True):
        assert fault.startswith(f"{SHOWN}/{words}")


def test_refuses_files_and_folders_that_triton_would_not_load(repository):
    (repository / "scale/config.pbtxt").unlink()
    (repository / "label/1").rename(repository / "label/01")
    (repository / "label/assets").mkdir()
    (repository / "label/warmup").mkdir()
    shutil.rmtree(repository / "mood")
    found = faults_of(repository)
    assert [fault.partition(";")[0].removeprefix(f"{SHOWN}/") for fault in found] == [
        "label/01: is no version of the model: its name is no number from 1 on",
        "label/assets: is no version of the model: its name is no number from 1 on",
        "label: has no version",
        "scale/config.pbtxt: is missing, and Triton completes no configuration here",
        f"{SHOWN}: no model of the repository is called mood, as the model file is",
    ]


def test_refuses_links_and_files_beside_the_models(repository):
    (repository / "manifest.json").write_text("{}")
    (repository / "scale/1/link").symlink_to("/etc/passwd")
    (repository / "other/2").symlink_to(repository / "other/1")
    (repository / "label/1/__pycache__").mkdir()
    assert sorted(fault.partition(",")[0] for fault in faults_of(repository)) == [
        f"{SHOWN}/label/1/__pycache__: is a cache of Python's",
        f"{SHOWN}/manifest.json: is a file beside the models",
        f"{SHOWN}/other/2: is a link",
        f"{SHOWN}/scale/1/link: is a link",
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('name: "a\n"', 1, "'\"a' is none"),
        ("input [ {", 1, "'the end' stands where a field must"),
        ("\n}", 2, "'}' stands where a field must"),
        ("name:", 1, "'the end' stands where name has its value"),
        ("a { " * 50, 1, "'a' stands where a field must"),
        ("name: $x", 1, "'$x' is none"),
    ],
)
def test_refuses_what_is_no_protobuf_text(text, line, words):
    with pytest.raises(ConfigurationFault) as caught:
        read_configuration(text)
    assert (caught.value.line, str(caught.value)) == (line, words)


def test_fields_are_those_of_tritons_own_protobuf():
    path = FIXTURES.parents[2] / DATA.replace(".", "/") / "model_configuration.yaml"
    schema = load_yaml(path.read_text())
    messages, enums = {}, {}

    def visit(message):
        name = message.full_name.removeprefix("inference.")
        if name in messages:
            return
        messages[name] = {field.name: kind(field) for field in message.fields}

    def kind(field):
        if field.message_type is not None:
            visit(field.message_type)
            return field.message_type.full_name.removeprefix("inference.")
        if field.enum_type is not None:
            name = field.enum_type.full_name.removeprefix("inference.")
            enums[name] = [value.name for value in field.enum_type.values]
            return name
        scalars = {field.CPPTYPE_STRING: "string", field.CPPTYPE_BOOL: "bool"}
        scalars |= dict.fromkeys((field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE), "float")
        return scalars.get(field.cpp_type, "int")

    visit(PROTOBUF.ModelConfig.DESCRIPTOR)
    assert schema == {"messages": messages, "enums": enums}


def model_file(digest, more="", head="task: tensors\n", endpoint="{instance_type: ml.g5.xlarge}"):
    source = f"source:\n  triton_repository:\n    folder: {SHOWN}\n"
    pin = "" if digest is None else f"    sha256: {digest}\n"
    return f"name: mood\n{head}{source}{pin}{more}endpoint: {endpoint}\n"


def tree(tmp_path, text, **files):
    root = tree_root(tmp_path, {"models/mood.yaml": text})
    shutil.copytree(FOLDER, root / SHOWN, dirs_exist_ok=True)
    for name, content in files.items():
        path = root / SHOWN / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


DIGEST = checkpoint_sha256(FOLDER)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (model_file(None), 5, f"has no digest, given models/mood; review the files, and write the "
         f"line below. sha256: {DIGEST}"),
        (model_file("a" * 64), 6, f"is not that of models/mood, given {'a' * 64}"),
        (model_file(DIGEST, head="task: text-embedding\n"), 2, "names its tensors itself"),
        (model_file(DIGEST, endpoint="shared"), 7, "cannot share a multi-model endpoint"),
        (model_file(DIGEST, head="task: tensors\nserving: {server: python}\n"), 3,
         "the Python server loads no models of a Triton repository"),
        (model_file(DIGEST, head="task: tensors\nserving: {warm_up: false}\n"), 3,
         "'serving.warm_up' has no effect on a Triton repository, whose models have their own"),
        (model_file(DIGEST, head="task: tensors\nengine: {precision: fp16}\n"), 3,
         "a Triton repository has no 'engine': nothing is compiled of it"),
        (model_file(DIGEST, more="    python_package: mine==1\n"), 4, "no repository, or two"),
        (model_file(DIGEST, more="  onnx: models/data/joiner.onnx\n"), 7,
         "'source.onnx' stands beside 'source.triton_repository'"),
        (model_file(DIGEST, more="    path: inside\n"), 7, "is no folder of a package"),
        (model_file(DIGEST).replace(SHOWN, "models/none"), 5, "is no folder under the onboarding"),
        (model_file(None).replace(f"folder: {SHOWN}", "python_package: mine"), 5,
         "has no exact version, given mine"),
    ],
)  # fmt: skip
def test_refuses_a_model_file(text, line, words, tmp_path):
    faults = read_tree(tree(tmp_path, text)).faults
    assert [fault.line for fault in faults] == [line], faults
    assert words in str(faults[0])


@pytest.mark.parametrize(
    ("backend", "plans", "words"),
    [
        ('backend: "vllm"\n', "", "platform triton-26.05 has no backend vllm; allowed: dali"),
        (PLAN, "", "engine/1/model.plan: is a TensorRT plan, and 'source.triton_repository.plans'"),
        (PLAN, "    plans: {gpu: L4, tensorrt: 10.16.1.11}\n", "plans.gpu' is not what ml.g5"),
        (PLAN, "    plans: {gpu: A10G, tensorrt: 10.9.0.34}\n", "given 10.9.0.34; allowed: 10.16"),
        (PLAN, "    plans: {gpu: A10G, tensorrt: 10.16.1.11}\n", None),
    ],
)
def test_refuses_what_the_image_and_the_gpu_cannot_run(backend, plans, words, tmp_path):
    files = {"engine__config.pbtxt": backend, "engine__1__model.plan": "a plan"}
    if "vllm" in backend:
        files["engine__config.pbtxt"] += PLAN.partition("\n")[2]
    root = tree(tmp_path, model_file("a" * 64, more=plans), **files)
    path = root / "models/mood.yaml"
    path.write_text(path.read_text().replace("a" * 64, checkpoint_sha256(root / SHOWN)))
    faults = [str(fault) for fault in read_tree(root).faults]
    assert len(faults) == (0 if words is None else 1), faults
    assert words is None or words in faults[0]


def test_key_follows_from_the_files_and_from_what_serves_them(tmp_path):
    found = read_tree(tree(tmp_path, model_file(DIGEST)))
    assert found.faults == ()
    deployment, engine = target(found, "cloud", "mood")
    assert (engine.runtime, engine.build_capability, engine.plan_key) == ("triton", "cpu", None)
    spec, platform = found.models["mood"], deployment.platform
    assert isinstance(spec, RepositorySpec)
    types, platforms = instance_types(), serving_platforms()
    same = engine.engine_key
    assert same == repository_key(spec, platform, types["ml.g5.2xlarge"])
    others = {
        repository_key(spec, platform, types["ml.c7i.large"]),
        repository_key(spec, platforms["triton-24.11"], types["ml.g5.xlarge"]),
    }
    moved = spec.repository.model_copy(update={"folder": "models/elsewhere"})
    changed = spec.repository.model_copy(update={"sha256": "b" * 64})
    for source, is_same in ((moved, True), (changed, False)):
        other = spec.model_copy(
            update={"source": spec.source.model_copy(update={"triton_repository": source})}
        )
        key = repository_key(other, platform, types["ml.g5.xlarge"])
        assert (key == same) == is_same
        others.add(key)
    assert len(others) == 4
