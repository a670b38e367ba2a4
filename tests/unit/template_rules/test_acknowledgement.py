"""What somebody let stand is shown, with the reason; a bad or a stale acknowledgement is a finding."""

from __future__ import annotations

import pytest

from template_rules.checking import checked
from template_rules.template import Template

pytestmark = pytest.mark.unit

REASON = "the alarm must not be lost"


def topic(*acknowledged):
    metadata = {"Metadata": {"Roundhouse": {"acknowledge": list(acknowledged)}}}
    return checked(
        [Template("a", {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", **metadata}}})]
    )


def test_finding_without_acknowledgement_stands():
    found = topic()
    assert [each.rule for each in found.findings] == ["RH235"]
    assert found.acknowledged == ()


@pytest.mark.parametrize("path", [{}, {"path": "KmsMasterKeyId"}])
def test_acknowledged_finding_is_kept_with_its_reason(path):
    found = topic({"rule": "RH235", "reason": REASON, **path})
    assert found.findings == ()
    assert [(each.rule, each.reason) for each in found.acknowledged] == [("RH235", REASON)]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"rule": "RH235"}, "gives no reason"),
        ({"rule": "RH235", "reason": "ok"}, "gives no reason"),
        ({"reason": REASON}, "names no rule"),
        ({"rule": "RH999", "reason": REASON}, "names no rule"),
        ({"rule": "RH001", "reason": REASON}, "cannot be acknowledged"),
        ({"rule": "RH235", "reason": REASON, "until": "2027"}, "another key"),
        ("RH235", "names no rule"),
    ],
)
def test_refuses_an_ill_formed_acknowledgement(entry, why):
    found = topic(entry)
    assert {each.rule for each in found.findings} == {"RH003", "RH235"}
    assert any(why in each.what for each in found.findings)


@pytest.mark.parametrize(
    "entry",
    [{"rule": "RH230", "reason": REASON}, {"rule": "RH235", "reason": REASON, "path": "TopicName"}],
)
def test_acknowledgement_that_meets_nothing_is_a_warning(entry):
    found = topic(entry)
    assert {(each.rule, each.severity) for each in found.findings} == {
        ("RH004", "warning"),
        ("RH235", "warning"),
    }


def test_template_acknowledges_what_has_no_resource():
    document = {
        "Resources": {},
        "Metadata": {
            "Roundhouse": {"acknowledge": [{"rule": "RH010", "reason": "it is emptied on purpose"}]}
        },
    }
    found = checked([Template("a", document)])
    assert found.findings == ()
    assert [each.rule for each in found.acknowledged] == ["RH010"]


def test_acknowledgement_is_of_its_own_resource_only():
    acknowledge = {
        "Metadata": {"Roundhouse": {"acknowledge": [{"rule": "RH235", "reason": REASON}]}}
    }
    resources = {"A": {"Type": "AWS::SNS::Topic", **acknowledge}, "B": {"Type": "AWS::SNS::Topic"}}
    assert [
        each.resource for each in checked([Template("a", {"Resources": resources})]).findings
    ] == ["B"]
