"""Changes that AWS takes in two updates only come as two."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stacks.endpoint.change import (
    CONFIG,
    ENDPOINT,
    POLICY,
    TARGET,
    hosting_fault,
    update_steps,
    with_held_resources,
)
from tests.synth import generation_cases
from tests.synth.endpoint_cases import (
    BESIDE,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    endpoint_settings,
    template,
)

pytestmark = pytest.mark.unit

BIGGER = {"ml.g5.xlarge": "ml.g5.2xlarge"}
FIXED = {"max: 2": "max: 1"}
ZERO = {"min: 1": "min: 0"}


def types(found: Any) -> dict[str, str]:
    return {key: resource["Type"] for key, resource in found["Resources"].items()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({}, {"max: 2": "max: 4"}),
        ({}, endpoint_settings("rollout: linear")),
        (FIXED, {**BIGGER, **FIXED}),
        ({}, FIXED),
        (FIXED, {}),
        (FIXED, BIGGER),
    ],
)
def test_change_that_aws_takes_is_one_update(before, after):
    first = template({MODEL: before})
    second = template({MODEL: after})
    (step,) = update_steps(first, second)
    assert step.template == second and step.reason is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, ZERO, "answers from a model of its variant, and its files ask for an inference comp"),
        (ZERO, {}, "answers from an inference component, and its files ask for a model"),
        (ZERO, {**ZERO, **BIGGER}, None),
        ({}, {**ZERO, **endpoint_settings(QUEUE)}, None),
    ],
)
def test_refuses_an_inference_component_in_the_place_of_a_model(before, after, words):
    first, second = template({MODEL: before}), template({MODEL: after})
    fault = hosting_fault(first, second)
    assert (words is None) == (fault is None) and (words or "") in (fault or "")
    assert hosting_fault(first, {"Resources": {}}) is None


@pytest.mark.parametrize("change", [BIGGER, endpoint_settings(POOLS), {**BIGGER, **FIXED}])
def test_instance_type_of_a_scaled_variant_changes_once_nothing_scales_it(change):
    before, after = template({}), template({MODEL: change})
    first, last = update_steps(before, after)
    assert "instance type of variant AllTraffic changes" in (first.reason or "")
    assert not {TARGET, POLICY} & set(types(first.template).values())
    kept = {
        key: item
        for key, item in before["Resources"].items()
        if item["Type"] not in (TARGET, POLICY)
    }
    assert first.template["Resources"] == kept and kept[next(iter(kept))] and last.template == after
    assert first.template["Outputs"] == before["Outputs"]


def test_whatever_refers_to_the_scaling_goes_with_it():
    queue = {"min: 1": "min: 0", **endpoint_settings(QUEUE)}
    before = template({MODEL: queue})
    after = template({MODEL: {**BIGGER, **queue}})
    assert "FromZeroAlarm" in types(before)
    first, _ = update_steps(before, after)
    assert (
        not {"ScalableTarget", "BacklogPolicy", "FromZeroPolicy", "FromZeroAlarm"}
        & types(first.template).keys()
    )
    assert {"ServerErrors", "Endpoint", "EndpointConfig", "Model", "Role"} <= types(
        first.template
    ).keys()


def test_scaling_that_went_comes_back_as_it_was():
    queue = {"min: 1": "min: 0", **endpoint_settings(QUEUE)}
    before = template({MODEL: queue})
    after = template({MODEL: {**BIGGER, **queue}})
    first, _ = update_steps(before, after)
    assert with_held_resources(json.loads(json.dumps(first.template))) == before
    assert with_held_resources(before) is with_held_resources(after) is None


def test_first_update_that_was_done_already_is_not_done_again():
    before, after = template({}), template({MODEL: BIGGER})
    first, _ = update_steps(before, after)
    assert [step.template for step in update_steps(first.template, after)] == [after]
    assert [step.template for step in update_steps(first.template, before)] == [before]


def test_scaling_of_other_variants_stays():
    before = template({BESIDE: beside("{joins: example}")})
    after = template({BESIDE: beside("{joins: example, instance_type: ml.g5.2xlarge}")})
    first, _ = update_steps(before, after)
    assert "variant beside" in (first.reason or "")
    assert [key for key, entry in types(first.template).items() if entry == TARGET] == [
        "ScalableTarget"
    ]


@pytest.mark.parametrize("comes", [True, False])
def test_variant_comes_and_goes_all_at_once(comes):
    alone = template({})
    both = template({BESIDE: beside("{joins: example}")})
    before, after = (alone, both) if comes else (both, alone)
    first, last = update_steps(before, after)
    assert "variant beside comes or goes" in (first.reason or "")
    endpoint = first.template["Resources"]["Endpoint"]["Properties"]
    wanted = after["Resources"]["Endpoint"]["Properties"]
    assert endpoint.keys() == wanted.keys() - {"DeploymentConfig"}
    # SageMaker takes the rollout of the last update with another config only.
    assert endpoint["EndpointConfigName"] != wanted["EndpointConfigName"]
    hosting = ("Endpoint", "EndpointConfig")
    others = [
        {key: element for key, element in found["Resources"].items() if key not in hosting}
        for found in (first.template, after)
    ]
    assert others[0] == others[1] and last.template == after


def test_both_changes_at_once_are_three_updates():
    before = template({})
    steps = update_steps(before, template({MODEL: BIGGER, BESIDE: beside("{joins: example}")}))
    assert [step.reason is None for step in steps] == [False, False, True]
    names = [
        step.template["Resources"]["EndpointConfig"]["Properties"]["EndpointConfigName"]
        for step in steps
    ]
    assert names[0] == before["Resources"]["EndpointConfig"]["Properties"]["EndpointConfigName"]
    assert len(set(names)) == 3


def test_first_deployment_and_refused_ones_are_one_update():
    whole = template({MODEL: BIGGER})
    refused = {"Resources": {"NotBuilt": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}}
    assert (
        len(update_steps(refused, whole))
        == len(update_steps(whole, refused))
        == len(update_steps({"Resources": {}}, whole))
        == 1
    )


def test_deployed_template_is_left_as_it_was():
    before, again = template({}), template({})
    after = template({MODEL: BIGGER, BESIDE: beside("{joins: example}")})
    update_steps(before, after)
    assert before == again and {ENDPOINT, CONFIG} <= set(types(before).values())
    assert "DeploymentConfig" in after["Resources"]["Endpoint"]["Properties"]


def adapters(**ranks: int) -> Any:
    """A text generator's template with these adapters, by their ranks."""
    rows = [{"name": name, "source": "adapters/faq", "rank": rank} for name, rank in ranks.items()]
    return generation_cases.template(generation_cases.generator(serving={"adapters": rows}))


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"fr": 8}), ({"fr": 8}, {"fr": 16, "de": 8}), ({"fr": 16}, {"fr": 16}), ({}, {})],
)
def test_adapters_that_new_copies_load_take_one_update(before, after):
    assert len(update_steps(adapters(**before), adapters(**after))) == 1


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [({"fr": 8}, {}, 0), ({"fr": 16, "de": 8}, {"de": 8}, 1)],
)
def test_adapters_that_go_do_so_before_their_base_changes(before, after, left):
    old, new = adapters(**before), adapters(**after)
    first, last = update_steps(old, new)
    gone = old["Resources"].keys() - first.template["Resources"].keys()
    assert {name[:7] for name in gone} == {"Adapter"} and len(gone) == len(before) - left
    assert {name: old["Resources"][name] for name in first.template["Resources"]} == (
        first.template["Resources"]
    )
    assert last.template == new and "adapters go" in first.reason
    deployed = json.loads(json.dumps(first.template))
    assert with_held_resources(deployed) == old and with_held_resources(new) is None
    assert [step.template for step in update_steps(deployed, new)] == [new]
