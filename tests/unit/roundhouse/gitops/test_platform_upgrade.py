"""What the installed packages say becomes edits of the files; the rest is for a person."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import jsii
import pytest
import yaml

from onboarding.platform import ServingPlatform, end_of_life, host_images, triton_registries
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.gitops.platform_upgrade import (
    PLATFORMS,
    REGISTRIES,
    PackageFacts,
    platform_upgrade,
    read_packages,
    replace_scalar,
)
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from tests.unit.roundhouse.gitops.repository import ROOT

pytestmark = pytest.mark.unit

TODAY = "2026-11-22"
COMMENT = "# fixes serving image, TensorRT build, quantization mode and host driver together"


def sdk(*versions, **accounts):
    registries = {**triton_registries(), **accounts}
    row = {"repository": "sagemaker-tritonserver", "registries": registries}
    return {"versions": {name: {**row, "tag_prefix": f"{name}-py3"} for name in versions}}


def facts(table, **changes):
    known = {"aws-cdk": ("2.1", "2.1"), "aws-cdk-lib": ("2.2", "2.2")}
    return PackageFacts(
        **{
            "triton": table,
            "sdk": "2.27.0",
            "botocore": "1.44.5",
            "host_images": tuple(host_images()),
            "versions": known,
            "releases": ("node-22", "python-3.11"),
            **changes,
        }
    )


@pytest.fixture
def root(tmp_path):
    """The shipped platform data and the shipped `dev`."""
    for folder in ("onboarding/data", "environments", "requirements"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def upgrade(root, table, **changes):
    return platform_upgrade("dev", root, facts(table, **changes), TODAY)


def rows(text):
    found = [ServingPlatform.model_validate(row) for row in yaml.safe_load(text)["rows"]]
    return {row.name: row for row in found}


def test_what_the_packages_say_already_is_no_finding(root):
    found = upgrade(root, sdk("25.09", "26.05"))
    assert (found.platform, found.findings, found.texts) == ("triton-26.05", (), {})


def test_image_of_a_known_platform_moves_the_environment(root):
    found = upgrade(root, sdk("26.05", "26.06"))
    assert rows(found.texts[PLATFORMS])["triton-26.06"].base_image == (
        "sagemaker-tritonserver:26.06-py3"
    )
    before = (root / "environments/dev.yaml").read_text()
    after = found.texts["environments/dev.yaml"]
    assert after == before.replace("triton-26.05", "triton-26.06") and COMMENT in after
    assert [item.is_edit for item in found.findings] == [True, True, False]
    assert "another major version" in found.findings[2].action


def test_platform_that_no_package_describes_is_a_row_for_a_person_to_fill_in(root):
    found = upgrade(root, sdk("26.05", "26.09"))
    row = rows(found.texts[PLATFORMS])["triton-26.09"]
    assert row.tensorrt is None and row.base_image == "sagemaker-tritonserver:26.09-py3"
    assert "environments/dev.yaml" not in found.texts
    assert "tensorrt, trtexec_dialect, cuda, minimum_driver" in found.findings[1].action

    (root / PLATFORMS).write_text(found.texts[PLATFORMS])
    again = upgrade(root, sdk("26.05", "26.09"))
    assert again.texts == {} and not again.findings[0].is_edit

    filled = re.sub(
        r"tensorrt: null .*\n.*\n.*\n.*\n.*\n",
        "tensorrt: 12.0.1\n    trtexec_dialect: 11\n    cuda: 13.4.0\n    minimum_driver: 580\n"
        "    inference_ami_version: al2023-ami-sagemaker-inference-gpu-4-1\n",
        found.texts[PLATFORMS],
        count=1,
    )
    (root / PLATFORMS).write_text(filled)
    (locked,) = upgrade(root, sdk("26.05", "26.09")).findings
    assert "requirements/bindings-12.0.1.in" in locked.action
    (root / "requirements/bindings-12.0.1.txt").touch()
    moved = upgrade(root, sdk("26.05", "26.09")).texts
    assert yaml.safe_load(moved["environments/dev.yaml"])["platform"] == "triton-26.09"


def test_platform_for_cpus_follows_no_image(root):
    found = platform_upgrade("local", root, facts(sdk("27.01")), TODAY)
    assert (found.findings, found.texts) == ((), {})


def test_registries_follow_the_sdk(root):
    table = sdk("26.05", **{"us-east-1": "111122223333", "eu-north-2": "444455556666"})
    del table["versions"]["26.05"]["registries"]["sa-east-1"]
    found = upgrade(root, table)
    after = yaml.safe_load(found.texts[REGISTRIES])["rows"]
    before = triton_registries()
    changed = {"us-east-1": "111122223333", "eu-north-2": "444455556666"}
    assert after == {**before, **changed} and list(after) == sorted(after)
    kept, shown = ((root / REGISTRIES).read_text(), found.texts[REGISTRIES])
    assert kept.split("rows:")[0] == shown.split("rows:")[0]
    assert {item.what.split()[-1]: item.is_edit for item in found.findings} == {
        "us-east-1": True,
        "eu-north-2": True,
        "sa-east-1": False,
    }


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"host_images": (*host_images(), "al2030-gpu-5-1", "al2030-neuron-1")}, "host image",
         "add its driver and CUDA"),
        ({"host_images": tuple(host_images())[:-1]}, "host image", "and name another one"),
        ({"releases": ("node-20",)}, "Node 20", "install a newer one"),
        ({"versions": {"aws-cdk": ("2.1", "2.0")}}, "aws-cdk", "make environments"),
        ({"versions": {"aws-cdk": ("2.1", "")}}, "aws-cdk", "make environments"),
    ],
    ids=["new host image", "host image gone", "node", "cdk", "cdk missing"],
)  # fmt: skip
def test_what_a_person_must_do_is_a_finding_and_no_edit(root, changes, what, words):
    found = upgrade(root, sdk("26.05"), **changes)
    (finding,) = found.findings
    assert (finding.what, finding.is_edit, found.texts) == (what, False, {})
    assert words in finding.action


def test_refuses_platform_data_that_cannot_be_read(root):
    (root / PLATFORMS).write_text("rows: [")
    with pytest.raises(RoundhouseError, match=r"cannot be read .*; mend it"):
        upgrade(root, sdk("26.05"))


def test_refuses_a_machine_without_the_sdk(tmp_path):
    paths = find_paths(ROOT)
    with pytest.raises(NotReadyError, match="make platform-data"):
        read_packages(type(paths)(code=tmp_path, tree=tmp_path, build=tmp_path), Processes())


def test_installed_packages_are_read(root):
    table = root / ".venvs/platform/lib/python3.11/site-packages/sagemaker/core/image_uri_config"
    table.mkdir(parents=True)
    (table / "sagemaker-tritonserver.json").write_text('{"versions": {}}')
    (table.parents[2] / "sagemaker_core-2.27.0.dist-info").mkdir()
    shutil.copyfile(ROOT / "package.json", root / "package.json")
    paths = find_paths(ROOT)
    found = read_packages(type(paths)(code=root, tree=root, build=root), Processes())
    assert (found.sdk, found.triton) == ("2.27.0", {"versions": {}})
    assert set(host_images()) <= set(found.host_images)
    pinned, installed = found.versions["aws-cdk-lib"]
    assert pinned == installed and found.versions["aws-cdk"][1] == ""
    assert {name.split("-")[0] for name in found.releases} == {"node", "python"}


def test_ends_of_life_of_node_are_those_that_the_cdk_knows():
    script = Path(jsii.__file__).parent / "_embedded/jsii/bin__jsii-runtime.js"
    known = re.findall(
        r'NodeRelease\((\d+),\{endOfLife:new Date\("([0-9-]+)"', script.read_text("utf-8")
    )
    ours = {name: day for name, day in end_of_life().items() if name.startswith("node-")}
    assert ours.items() <= {f"node-{number}": day for number, day in known}.items()
    newest = max(int(number) for number, _ in known)
    assert f"node-{newest}" in ours


def test_scalars_are_replaced_where_they_stand():
    text = "a: 1\nrows:\n  - {name: x, b: null}   # why\n  - {name: y, b: 2}\n"
    assert replace_scalar(text, ("rows", 0, "b"), "3") == text.replace("null", "3")
