"""What a change of files does to templates, ensembles and text generators."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding import names
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.gitops.endpoint_facts import variant_facts
from roundhouse.gitops.engine_changes import engine_changes
from roundhouse.gitops.plan import Change, endpoint_change, environment_plan
from roundhouse.gitops.template_changes import (
    REPLACING_PROPERTIES,
    permission_changes,
    resource_changes,
    template_digest,
)
from roundhouse.promoted_tree import model_files
from tests.synth import generation_cases
from tests.synth.generation_cases import (
    IMAGES,
    SCALED,
    ZERO,
    generator,
    generator_files,
    lock_checkpoints,
)
from tests.unit.onboarding.trees import tree_root

CONFIG, ENDPOINT = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint"


def template(kind="AWS::CloudWatch::Alarm", **properties):
    return {"Resources": {"A": {"Type": kind, "Properties": properties}}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, template(), "added"),
        (template(), None, "removed"),
        (template(Threshold=1), template(Threshold=2), "in-place"),
        (template(AlarmName="a"), template(AlarmName="b"), "replaced"),
        (template("AWS::S3::Bucket"), template("AWS::SNS::Topic"), "replaced"),
        (template(CONFIG, KmsKeyId="a"), template(CONFIG, KmsKeyId="b"), "new-version"),
        (template(ENDPOINT, EndpointConfigName="a"), template(ENDPOINT, EndpointConfigName="b"),
         "in-place"),
        (template(ENDPOINT, EndpointName="a"), template(ENDPOINT, EndpointName="b"), "outage"),
        (template(ENDPOINT), None, "outage"),
        (template(ENDPOINT), template(), "outage"),
    ],
)  # fmt: skip
def test_class_of_a_change(before, after, expected):
    assert [change.change for change in resource_changes(before, after)] == [expected]


def test_order_and_notes_alone_change_nothing():
    before = template(Threshold=1)
    after = {"Resources": {"A": {**before["Resources"]["A"], "DependsOn": ["B"], "Metadata": {}}}}
    assert resource_changes(before, after) == ()
    assert template_digest(before) == template_digest(after)


def test_what_an_update_takes_over_from_running_variants_changes_nothing():
    sides = template(ENDPOINT, RetainAllVariantProperties=True), template(ENDPOINT)
    assert resource_changes(*sides) == () and len(set(map(template_digest, sides))) == 1


def test_digest_does_not_depend_on_how_a_whole_number_is_written():
    assert template_digest(template(Threshold=1.0, Values=(2.0, 0.5))) == template_digest(
        template(Threshold=1, Values=[2, 0.5])
    )


def test_property_is_named_by_its_whole_path_and_a_long_text_by_its_digest():
    before = template(A={"B": [{"C": 1}, {"C": 2}]}, D="x" * 3000, E=[1])
    after = template(A={"B": [{"C": 1}, {"C": 3}]}, D="y" * 3000, E=[1, 2])
    (change,) = resource_changes(before, after)
    assert [(item.path, item.before) for item in change.properties][::2] == [
        ("A.B[1].C", 2),
        ("E", [1]),
    ]
    assert change.properties[1].before.startswith("3,000 characters, sha256 ")


def test_grant_that_only_moves_to_another_policy_is_no_change():
    def policy(name, action):
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        return {
            "Resources": {
                name: {
                    "Type": "AWS::IAM::Policy",
                    "Properties": {"PolicyDocument": {"Statement": [statement]}},
                }
            }
        }

    assert permission_changes(policy("A", "s3:GetObject"), policy("B", "s3:GetObject")).added == ()
    changed = permission_changes(policy("A", "s3:GetObject"), policy("B", "s3:*"))
    assert "s3:*" in changed.added[0] and len(changed.removed) == 1


def test_replacing_properties_are_those_of_cloudformations_schemas():
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    for kind, properties in REPLACING_PROPERTIES.items():
        schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
        known = {path.split("/")[2] for path in schema["createOnlyProperties"]}
        assert set(properties) <= known, kind


PAIR = """\
name: pair
task: ensemble
steps:
  - {model: example}
  - {model: joiner}
outputs: [scores]
accuracy: {dataset: models/data/validation.txt}
endpoint: {instance_type: ml.g5.xlarge}
"""


def test_ensemble_that_is_not_built_needs_its_models_too(tmp_path):
    tree = read_tree(tree_root(tmp_path, {"models/pair.yaml": PAIR}))
    (pair,) = [item for item in deployments(tree, "cloud") if item.name == "pair"]
    found = engine_changes(tree, (), (pair,))
    assert [item.model for item in found] == ["example", "joiner", "pair"]
    assert engine_changes(tree, (pair,), (pair,)) == found, "nothing is built yet"


def test_promotion_takes_what_an_ensembles_models_follow_from(tmp_path):
    tree = read_tree(tree_root(tmp_path, {"models/pair.yaml": PAIR}))
    files = set(model_files(tree, "pair"))
    assert {f"models/{name}.yaml" for name in ("pair", "example", "joiner")} <= files
    assert {"models/data/joiner.onnx", "models/data/calibration.txt"} <= files


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def change(before, after):
    sides = [None if item is None else generation_cases.template(item) for item in (before, after)]
    return endpoint_change("us-east-1", "chat", (before, after), tuple(sides))


def test_another_checkpoint_rolls_copies_over_in_batches(generation):
    entry = generation.entry.model_copy(update={"checkpoint_key": "1" * 20})
    found = change(generation, dataclasses.replace(generation, entry=entry))
    classes = {item.id: item.change for item in found.resources}
    assert (classes["Model"], classes["InferenceComponent"]) == ("new-version", "in-place")
    assert "EndpointConfig" not in classes and not found.outage
    assert (found.rollout.kind, found.rollout.step_percents) == ("rolling copies", (50.0, 100.0))
    assert found.permissions.added and found.permissions.removed


def test_new_endpoint_costs_its_instances_from_least_to_most(generation):
    found = change(None, generation)
    assert found.kind == "new" and found.rollout is None
    (variant,) = variant_facts(generation_cases.template(generation))
    assert (variant.least, variant.most) == (1, 6)
    (zero,) = variant_facts(generation_cases.template(generator(**ZERO)))
    assert zero.least == 0


def test_removed_generator_that_is_deployed_is_listed_once(tmp_path):
    root = tree_root(tmp_path, generator_files(**SCALED))
    (removed,) = lock_checkpoints(root)
    base = read_tree(root)
    (root / "models/chat.yaml").unlink()
    stack = names.stack_name(removed.environment, f"endpoint-{removed.name}")
    change = Change(
        environment=removed.environment,
        base=base,
        head=read_tree(root),
        image_uris=IMAGES,
        deployed={stack: generation_cases.template(removed)},
    )
    found = environment_plan(change, lambda *_: {}).endpoints
    assert [(item.name, item.kind, item.outage) for item in found] == [(removed.name, "gone", True)]
