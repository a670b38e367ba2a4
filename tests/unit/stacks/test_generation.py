"""What a text generator's stack deploys, as plain data."""

from __future__ import annotations

import dataclasses
import json

import pytest

from stacks.endpoint.findings import endpoint_faults, endpoint_notes
from tests.synth.generation_cases import (
    SCALED,
    generator,
    knee,
    template,
)

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def test_another_checkpoint_changes_the_component_and_not_the_endpoint(generation):
    entry = generation.entry.model_copy(update={"checkpoint_key": "1" * 20})
    after = dataclasses.replace(generation, entry=entry)
    changed = {
        name
        for name, item in template(after)["Resources"].items()
        if item != template(generation)["Resources"].get(name)
    }
    assert {name for name in changed if "Policy" not in name} == {"Model", "InferenceComponent"}
    assert len([name for name in changed if name.startswith("VersionPolicy")]) == 1


def test_same_files_give_the_same_template():
    first, again = (json.dumps(template(generator(**SCALED)), sort_keys=True) for _ in range(2))
    assert first == again


def watched_metrics(resources, name):
    """(metric, dimensions) of an alarm on metric math."""
    metrics = [
        query["MetricStat"]["Metric"]
        for query in resources[name]["Properties"]["Metrics"]
        if "MetricStat" in query
    ]
    return {
        (item["MetricName"], *(dimension["Name"] for dimension in item["Dimensions"]))
        for item in metrics
    }


def test_an_update_is_taken_back_by_metrics_that_any_invocation_publishes(generation):
    """Those of first parts and broken streams AWS lists under bidirectional streaming alone."""
    resources = template(generation)["Resources"]
    component = resources["InferenceComponent"]["Properties"]
    rollback = component["DeploymentConfig"]["AutoRollbackConfiguration"]["Alarms"]
    names = [alarm["AlarmName"].removeprefix("cloud-chat-") for alarm in rollback]
    assert names == [
        *("server-errors", "component-errors", "no-answers"),
        *("stream-errors", "first-token", "latency"),
    ]
    of_variant = ("EndpointName", "VariantName")
    assert watched_metrics(resources, "Latency") == {("ModelLatency", *of_variant)}
    assert watched_metrics(resources, "ComponentErrors") == {
        ("Invocation5XXErrors", "InferenceComponentName")
    }
    slo, context = generation.spec.slo, generation.spec.context
    seconds = (slo.ttft_p95_ms + context.output_p95 * slo.itl_p95_ms) / 1000
    assert resources["Latency"]["Properties"]["Threshold"] == seconds * 1_000_000


def test_refuses_a_checkpoint_that_is_not_built():
    (fault,) = endpoint_faults(generator(build=False))
    assert "`roundhouse build --env cloud --model chat`" in fault
    assert template(generator(build=False)) == {"Resources": {}}


def test_estimate_is_noted_until_a_load_test_has_measured_the_instance_type():
    notes = [
        any("the plan's estimate" in note for note in endpoint_notes(generator(**SCALED, **more)))
        for more in ({}, {"entry": {"knee": knee(10, "ml.g6e.2xlarge")}})
    ]
    assert notes == [True, False]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"Ref": "main"}, "variable Ref, which CloudFormation takes for a reference; give it"),
        ({f"V{number}": "1" for number in range(101)}, "variables, and SageMaker takes 100; take"),
        ({"LONG": "x" * 1025}, "1025 bytes in LONG, and SageMaker takes 1024; name a file"),
        ({f"V{number}": "x" * 1000 for number in range(40)}, "bytes, and SageMaker takes 32768;"),
    ],
)
def test_refuses_variables_that_sagemaker_does_not_take(generation, variables, words):
    serving = generation.spec.serving.model_copy(update={"environment": variables})
    spec = generation.spec.model_copy(update={"serving": serving})
    faults = endpoint_faults(dataclasses.replace(generation, spec=spec))
    assert len(faults) == 1 and words in faults[0]
