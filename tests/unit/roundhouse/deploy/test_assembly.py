"""An assembly that is written with other templates is one that the cdk command line can deploy
alone.
"""

from __future__ import annotations

import json

import pytest

from roundhouse.deploy.cdk import stack_artifacts, write_assembly
from roundhouse.errors import NotReadyError

STACK = {
    "type": "aws:cloudformation:stack",
    "environment": "aws://000000000000/us-east-1",
    "dependencies": ["Foundation", "A.assets"],
    "displayName": "local/A",
    "properties": {
        "templateFile": "A.template.json",
        "stackName": "stack-a",
        "tags": {"roundhouse-environment": "local"},
        "assumeRoleArn": "arn:aws:iam::000000000000:role/deploy",
        "stackTemplateAssetObjectUrl": "s3://assets/digest-of-another-template.json",
        "additionalDependencies": ["A.assets"],
    },
}


@pytest.fixture
def synthesised(tmp_path):
    nested = tmp_path / "cdk" / "assembly-local"
    nested.mkdir(parents=True)
    outer = {
        "assembly-local": {
            "type": "cdk:cloud-assembly",
            "properties": {"directoryName": "assembly-local"},
        }
    }
    (nested.parent / "manifest.json").write_text(
        json.dumps({"version": "55.0.0", "artifacts": outer})
    )
    inner = {
        "A": STACK,
        "A.assets": {"type": "cdk:asset-manifest", "properties": {"file": "A.assets.json"}},
    }
    (nested / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": inner}))
    (nested / "A.template.json").write_text('{"Resources": {"After": {}}}')
    return nested.parent


def test_stacks_of_a_nested_assembly_are_found_by_name(synthesised):
    (artifact,) = stack_artifacts(synthesised).values()
    assert stack_artifacts(synthesised).keys() == {"stack-a"}
    assert artifact.template == {"Resources": {"After": {}}}


def test_written_stack_keeps_its_roles_and_tags_and_names_no_uploaded_template(
    synthesised, tmp_path
):
    folder = tmp_path / "steps"
    write_assembly(folder, stack_artifacts(synthesised), {"stack-a": {"Resources": {"First": {}}}})
    manifest = json.loads((folder / "manifest.json").read_text())
    written = manifest["artifacts"]["A"]
    assert manifest["version"] == "55.0.0"
    assert "dependencies" not in written
    kept = {
        key: value
        for key, value in STACK["properties"].items()
        if key not in ("stackTemplateAssetObjectUrl", "additionalDependencies")
    }
    assert written["properties"] == kept
    assert stack_artifacts(folder)["stack-a"].template == {"Resources": {"First": {}}}


def test_second_writing_leaves_nothing_of_the_first(synthesised, tmp_path):
    folder = tmp_path / "steps"
    artifacts = stack_artifacts(synthesised)
    for resources in ({"First": {}}, {"Second": {}}):
        write_assembly(folder, artifacts, {"stack-a": {"Resources": resources}})
    assert stack_artifacts(folder)["stack-a"].template == {"Resources": {"Second": {}}}


def test_refuses_a_folder_that_is_a_file(synthesised, tmp_path):
    (tmp_path / "steps").write_text("")
    with pytest.raises(NotReadyError, match=r"steps: cannot be written"):
        write_assembly(tmp_path / "steps", stack_artifacts(synthesised), {})
