"""A plan lists what CloudFormation's own change sets list, and names every outage."""

from __future__ import annotations

import pytest

from roundhouse.paths import find_paths
from tests.local_cloud.plan_truth.comparison import compare_plans
from tests.local_cloud.tiny_session import REPOSITORY, wait_for_processes

pytestmark = pytest.mark.local_cloud

SEEDS = range(1000, 1020)


def test_plans_of_random_edits_are_what_cloudformation_changes(tmp_path, monkeypatch):
    for name in ("AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    verdicts = list(compare_plans(find_paths(REPOSITORY), tmp_path, SEEDS))
    assert [line for verdict in verdicts for line in verdict.differences] == []
    assert [line for verdict in verdicts for line in verdict.missed_outages] == []
    assert sum(verdict.resources for verdict in verdicts) > len(SEEDS)
    assert any(verdict.outages for verdict in verdicts)
    assert wait_for_processes(tmp_path)
