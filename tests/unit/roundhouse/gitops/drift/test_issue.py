"""Drift is one issue: opened, updated while things differ, closed when nothing does."""

from __future__ import annotations

import pytest

from roundhouse.gitops.drift.difference import Difference
from roundhouse.gitops.drift.issue import report_drift
from roundhouse.gitops.forge.forge import forge_of
from tests.unit.roundhouse.gitops.forge.test_forge import variables

pytestmark = pytest.mark.unit


@pytest.fixture(params=["github", "gitlab"])
def forge(request, server):
    return forge_of(variables(request.param, server.url))


def difference(what):
    return Difference(endpoint="search", what=what, deployed=1.0, live="@all | <b> #1")


def test_issue_is_opened_updated_and_closed(forge, server):
    address = report_drift(forge, "prod", [difference("weight of A")])
    assert report_drift(forge, "prod", [difference("weight of B")]) == address
    (issue,) = server.texts["issue"]
    text = issue.get("body") or issue["description"]
    assert "weight of B" in text and "weight of A" not in text
    assert "@all" not in text and "<b>" not in text
    assert report_drift(forge, "prod", []) == address
    assert issue["state"] == "closed"
    assert report_drift(forge, "prod", []) is None


def test_environments_have_issues_of_their_own(forge, server):
    report_drift(forge, "dev", [difference("weight of A")])
    report_drift(forge, "prod", [difference("weight of A")])
    report_drift(forge, "dev", [])
    assert [issue["state"] == "closed" for issue in server.texts["issue"]] == [True, False]
