"""Alarms on what DCGM says of each GPU, by PromQL."""

from __future__ import annotations

import pytest

from onboarding.hosting_spec import MetricsSpec
from stacks.alarms.gpu_alarms import gpu_alarms
from stacks.alarms.properties import alarms
from stacks.resources import l1_value
from template_rules.findings import own_findings
from template_rules.templates import Template
from tests.synth.deployments import one, with_endpoint
from tests.synth.endpoint_cases import MODEL, endpoint_settings, template
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

LIMITS = {"DCGM_FI_DEV_GPU_TEMP": 85.0, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0.0}


def limited():
    metrics = MetricsSpec(detailed=True, gpu_limits=LIMITS)
    return with_endpoint(one("dev", "sentence-embedder"), metrics=metrics)


def test_each_limit_is_an_alarm_of_each_gpu_of_the_variant():
    found = gpu_alarms(limited())
    assert set(found) == {"DcgmFiDevGpuTemp", "DcgmFiDevEccDbeVolTotal"}
    temperature = found["DcgmFiDevGpuTemp"]
    assert temperature["AlarmName"] == "dev-sentence-embedder-dcgm-fi-dev-gpu-temp"
    assert temperature["EvaluationCriteria"]["PromQLCriteria"]["Query"] == (
        '{"DCGM_FI_DEV_GPU_TEMP", "aws.sagemaker.endpoint.name"="dev-sentence-embedder", '
        '"aws.sagemaker.variant.name"="AllTraffic"} > 85'
    )
    assert found.items() <= alarms(limited()).items()


def test_gpu_alarms_are_of_every_variant_and_of_files_that_ask():
    both = gpu_alarms(with_variant(limited(), "other"))
    assert len(both) == 2 * len(LIMITS)
    assert len({alarm["AlarmName"] for alarm in both.values()}) == len(both)
    assert gpu_alarms(one("dev", "sentence-embedder")) == {}


def test_gpu_alarm_has_no_metric_and_passes_the_rules():
    limits = "metrics: {detailed: true, gpu_limits: {DCGM_FI_DEV_GPU_TEMP: 85}}"
    found = template({MODEL: endpoint_settings(limits)})
    alarm = found["Resources"]["DcgmFiDevGpuTemp"]["Properties"]
    assert not {"MetricName", "Metrics", "Threshold", "EvaluationPeriods"} & set(alarm)
    assert list(own_findings(Template("t.json", found))) == []


def test_criteria_reach_the_construct_by_the_name_that_it_has():
    value = l1_value("EvaluationCriteria", {"PromQLCriteria": {"Query": "up"}})
    assert value == {"promQlCriteria": {"query": "up"}}
