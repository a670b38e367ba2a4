"""Templates that the CDK does not write are as it would have written them."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import pytest
from aws_cdk import App, CfnResource, Stack

from stacks.template_synthesizer import TemplateSynthesizer
from stacks.template_text import (
    DEFAULT_QUALIFIER,
    QUALIFIER_CONTEXT,
    json_text,
    with_bootstrap_rule,
)

pytestmark = pytest.mark.synth

PROPERTIES = {
    "Whole": 50.0,
    "Part": 0.5,
    "Truth": True,
    "Text": 'é \u2028 \t " \\ ${AWS::Region}',
    "List": [1, "two", {"Three": 3.0}],
    "Ref": {"Fn::GetAtt": ["Role", "Arn"]},
}
TEMPLATE = {
    "Resources": {
        "Thing": {"Type": "AWS::SSM::Parameter", "Properties": PROPERTIES, "DependsOn": ["Role"]}
    }
}


class Own(Stack):
    """A stack whose template is `TEMPLATE`."""

    def __init__(self, scope, qualifier):
        synthesizer = TemplateSynthesizer(lambda: TEMPLATE, qualifier)
        super().__init__(scope, "Own", synthesizer=synthesizer, tags={"a": "b"})
        synthesizer.stack = self


class Hung(Stack):
    """The same, hung into the CDK."""

    def __init__(self, scope):
        super().__init__(scope, "Hung", tags={"a": "b"})
        CfnResource(self, "Thing", type="AWS::SSM::Parameter", properties=PROPERTIES).add_override(
            "DependsOn", ["Role"]
        )


def synthesized(folder, *make, **context):
    """By stack: its artifact in the manifest, and the text of its template."""
    app = App(outdir=str(folder), analytics_reporting=False, context=context)
    for each in make:
        each(app)
    app.synth()
    artifacts = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    return {
        name: (artifacts[name], (folder / f"{name}.template.json").read_text(encoding="utf-8"))
        for name in ("Hung", "Own")
    }


@pytest.mark.parametrize("qualifier", [DEFAULT_QUALIFIER, "another"])
def test_template_and_artifact_are_those_of_a_stack_that_hangs_its_resources(tmp_path, qualifier):
    stacks = synthesized(
        tmp_path, Hung, partial(Own, qualifier=qualifier), **{QUALIFIER_CONTEXT: qualifier}
    )
    (hung, hung_text), (own, own_text) = stacks["Hung"], stacks["Own"]
    assert own_text == hung_text and json.loads(own_text) == with_bootstrap_rule(
        TEMPLATE, qualifier
    )
    assert own.keys() == hung.keys()
    unlike = {"templateFile", "stackTemplateAssetObjectUrl", "additionalDependencies"}
    assert own["properties"].keys() == hung["properties"].keys()
    assert {k: v for k, v in own["properties"].items() if k not in unlike} == {
        k: v for k, v in hung["properties"].items() if k not in unlike
    }
    assert qualifier in own["properties"]["stackTemplateAssetObjectUrl"]


def test_template_is_uploaded_under_a_name_that_its_content_gives(tmp_path):
    artifact, text = synthesized(tmp_path, Hung, partial(Own, qualifier=DEFAULT_QUALIFIER))["Own"]
    (asset,) = json.loads((tmp_path / "Own.assets.json").read_text(encoding="utf-8"))[
        "files"
    ].values()
    assert asset["source"] == {"path": "Own.template.json", "packaging": "file"}
    name = f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    assert [destination["objectKey"] for destination in asset["destinations"].values()] == [name]
    assert artifact["properties"]["stackTemplateAssetObjectUrl"].endswith(f"/{name}")


def test_text_is_the_cdks_own(tmp_path):
    for _artifact, text in synthesized(
        tmp_path, Hung, partial(Own, qualifier=DEFAULT_QUALIFIER)
    ).values():
        assert json_text(json.loads(text)) == text


def test_nothing_and_empty_values_are_json():
    assert (
        json_text({"a": [], "b": {}, "c": None, "d": -0.5})
        == '{\n "a": [],\n "b": {},\n "c": null,\n "d": -0.5\n}'
    )
