"""Timeouts and rollouts of an endpoint's template."""

from __future__ import annotations

import dataclasses

import pytest

from stacks.endpoint.template import endpoint_template
from stacks.endpoint.warnings import endpoint_notes
from stacks.rollout import download_timeout_seconds, start_up_timeout_seconds
from tests.fixtures.many_models import lock_entry
from tests.synth.endpoint_cases import (
    IMAGES,
    MODEL,
    config,
    endpoint_settings,
    endpoints,
    example,
    properties,
    template,
)

pytestmark = pytest.mark.unit


def test_start_up_timeout_grows_with_the_measured_load_and_stays_in_bounds():
    loads = (0.0, 30.0, 120.0, 5000.0)
    assert [start_up_timeout_seconds([load]) for load in loads] == [480, 480, 540, 3600]


def test_download_timeout_grows_with_the_archive_and_stays_in_bounds():
    sizes = [mib * 2**20 for mib in (0, 2000, 10_000, 1_000_000)]
    assert [download_timeout_seconds([size]) for size in sizes] == [300, 300, 560, 3600]


def test_timeouts_of_a_multi_model_endpoint_do_not_depend_on_its_models():
    shared = endpoints({})["shared"]
    large = shared.with_targets(
        lambda target: dataclasses.replace(
            target,
            lock_entry=lock_entry(shared, target, archive_bytes=20_000 * 2**20, load_seconds=600.0),
        )
    )
    names = [
        config(endpoint_template(item, IMAGES))["EndpointConfigName"] for item in (shared, large)
    ]
    assert names[0] == names[1]


# --- rollout


def test_refuses_steps_of_less_than_an_instance_and_updates_all_at_once():
    one_instance = example({MODEL: endpoint_settings("rollout: canary")})
    two = {**endpoint_settings("rollout: canary"), "min: 1": "min: 2"}
    two_instances = example({MODEL: two})
    types = [
        properties(endpoint_template(entry, IMAGES), "Endpoint")["DeploymentConfig"][
            "BlueGreenUpdatePolicy"
        ]["TrafficRoutingConfiguration"]["Type"]
        for entry in (one_instance, two_instances)
    ]
    assert types == ["ALL_AT_ONCE", "CANARY"]
    (note,) = (element for element in endpoint_notes(one_instance) if "rollout" in element)
    assert "updates are all-at-once, unless every scaling.min is 2 or more" in note
    assert not any("rollout" in note for note in endpoint_notes(two_instances))


def test_rolling_update_goes_back_in_batches_too():
    changes = {MODEL: {**endpoint_settings("rollout: rolling"), "min: 1": "min: 2"}}
    policy = properties(template(changes), "Endpoint")["DeploymentConfig"]["RollingUpdatePolicy"]
    assert policy["RollbackMaximumBatchSize"] == policy["MaximumBatchSize"]


def test_changed_rollout_alone_has_a_config_of_another_name():
    two = {"min: 1": "min: 2"}
    first, second = (
        template({MODEL: {**endpoint_settings(f"rollout: {kind}"), **two}})
        for kind in ("canary", "linear")
    )
    assert config(first)["EndpointConfigName"] != config(second)["EndpointConfigName"]
    assert config(first)["ProductionVariants"] == config(second)["ProductionVariants"]


def test_key_encrypts_the_volume_and_the_local_disk_is_noted():
    deployment = example({})
    assert config(endpoint_template(deployment, IMAGES))["KmsKeyId"] == "alias/roundhouse-cloud"
    assert any(
        "not the local NVMe disk of ml.g5.xlarge" in note for note in endpoint_notes(deployment)
    )
