"""Every rule in pairs: what it refuses, and what is nearly that and sound."""

from __future__ import annotations

import pytest

from template_rules.checking import checked
from template_rules.rules import all_rules, rules
from tests.unit.template_rules.cases import all_cases, bases, template

pytestmark = pytest.mark.unit

CASES = list(all_cases())


@pytest.mark.parametrize("base", bases())
def test_bases_are_sound(base):
    assert [str(each) for each in checked([template(base, {})]).findings] == []


@pytest.mark.parametrize("case", [case for case in CASES if case.refuses], ids=str)
def test_refuses(case):
    found = case.findings()
    assert found
    for finding in found:
        assert finding.what and finding.way_out
        assert "\0" not in str(finding)
        assert str(finding).endswith(f"[{case.rule}]")


@pytest.mark.parametrize("case", [case for case in CASES if not case.refuses], ids=str)
def test_accepts(case):
    assert [str(each) for each in case.findings()] == []


def test_every_rule_has_a_pair():
    paired = {case.rule for case in CASES if case.refuses} & {
        case.rule for case in CASES if not case.refuses
    }
    assert {each.id for each in rules()} - paired == set()
    assert {case.rule for case in CASES} <= {each.id for each in all_rules()}


def test_ids_are_of_one_rule_each():
    ids = [each.id for each in all_rules()]
    assert len(ids) == len(set(ids))
    assert ids == sorted(ids)


def test_sentences_say_what_holds():
    for each in all_rules():
        assert not each.sentence.endswith(".")
        assert each.sentence[0].islower() or each.sentence.startswith(("Ref", "Fn::", "DependsOn"))


SENTENCES = (
    (
        "hosting",
        {"Latency.Threshold": 50},
        "Latency.Threshold: "
        "ModelLatency is in microseconds, and this is 0.05 ms, given 50; allowed: 50000 for 50 ms; write 50000. [RH194]",
    ),
    (
        "hosting",
        {"Config.ProductionVariants.0.InstanceType": "ml.g5.12xlarge"},
        "Gpu.TargetTrackingScalingPolicyConfiguration.TargetValue: "
        "GPUUtilization counts 100 for each of the 4 GPUs of ml.g5.12xlarge, "
        "so that this is 17.5 %, given 70; allowed: above 100, at most 400; write 280. [RH167]",
    ),
    (
        "hosting",
        {"Target.MinCapacity": 9},
        "Target.MinCapacity: "
        "the minimum is over the maximum, given 9; allowed: at most 4, the maximum; swap or change them. [RH160]",
    ),
    (
        "hosting",
        {"Target.ResourceId": "endpoint/embedder/variant/Blue"},
        "Target.ResourceId: endpoint embedder has no variant Blue, given endpoint/embedder/variant/Blue; allowed: AllTraffic; "
        "name one of these. [RH162]",
    ),
    (
        "hosting",
        {"Config.ProductionVariants.0.InstanceType": "ml.g5.xlarg"},
        "Config.ProductionVariants[0].InstanceType: "
        "the instance type is unknown, given ml.g5.xlarg; did you mean ml.g5.xlarge? [RH120]",
    ),
    (
        "stores",
        {"Topic.KmsMasterKeyId": {"Ref": "Kee"}},
        "Topic.KmsMasterKeyId: Ref names 'Kee', and no parameter or resource has that name; "
        "allowed: Bucket, BucketPolicy, Group, Key, Queue, Repository, Topic; did you mean 'Key'? [RH020]",
    ),
    (
        "hosting",
        {"Role.Policies.0.PolicyDocument.Statement.0.Action": "s3:GetObjects"},
        "Role.Policies[0].PolicyDocument.Statement[0].Action: s3 has no such action (statement Read), given s3:GetObjects; "
        "did you mean s3:GetObject? [RH223]",
    ),
    (
        "stores",
        {"Key.DependsOn": "Topic"},
        "Key: resources wait for one another, given Key -> Topic -> Key; take one reference out. [RH023]",
    ),
)


@pytest.mark.parametrize(("base", "change", "sentence"), SENTENCES)
def test_finding_is_one_sentence(base, change, sentence):
    assert sentence in [str(each) for each in checked([template(base, change)]).findings]
