"""Targets of utilization within what an instance can reach."""

import pytest

from template_rules.hosting import ENDPOINT_CONFIG, Variant
from template_rules.rules.scaling_policies import utilization_fault
from template_rules.templates import Resource, Template

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("value", "fits"), [(1.0, False), (140.0, True), (201.0, False)])
def test_cpu_target_lies_within_what_the_vcpus_can_reach(value, fits):
    config = Resource(
        template=Template("t.json", {}), logical_id="Config", type=ENDPOINT_CONFIG, raw={}
    )
    two_vcpus = Variant(config, "", {"InstanceType": "ml.c7i.large"}, shadow=False)
    assert (utilization_fault(two_vcpus, value, "CPUUtilization") is None) == fits
