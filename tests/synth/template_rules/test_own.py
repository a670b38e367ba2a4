"""No rule says anything about templates of our own: shipped environments, and endpoints with
everything on.
"""

from __future__ import annotations

import json

import pytest

from stacks.endpoint.template import endpoint_template
from template_rules.checking import checked
from template_rules.stack_facts import StackFacts
from template_rules.template import Template
from tests.synth.endpoint_cases import (
    BESIDE,
    CAPTURE,
    CLOUD,
    IMAGES,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    endpoints,
    wishes,
)
from tests.synth.template_rules.own import by_our_rules, by_the_others, synthesize

pytestmark = pytest.mark.synth

REGION = StackFacts(account="111122223333", region="us-east-1")
SCALING = "  scaling: {min: 2, max: 6, schedule: [{cron: 0 7 ? * MON-FRI *, min: 4}]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    synthesize(made)
    return made


def test_shipped_environments_are_clean(folder):
    assert list(by_our_rules(folder)) == []


def test_shipped_environments_are_clean_for_the_others(folder):
    assert list(by_the_others(folder)) == []


def test_a_fault_in_them_is_said_by_every_engine(folder, tmp_path):
    source = next((folder / "locked").rglob("*sentenceembedder*.template.json"))
    document = json.loads(source.read_text(encoding="utf-8"))
    document["Resources"]["EndpointConfig"]["Properties"]["ProductionVariants"][0][
        "InitialInstanceCount"
    ] = "one"
    for name in ("a", "b", "c"):
        broken = tmp_path / "part" / f"{name}.template.json"
        broken.parent.mkdir(exist_ok=True)
        broken.write_text(json.dumps(document), encoding="utf-8")
    assert any("RH032" in said for said in by_our_rules(tmp_path))
    others = " ".join(by_the_others(tmp_path))
    assert "E3012" in others
    assert "F3012" in others


EVERYTHING = {
    "plain": {},
    "pools": {MODEL: wishes(POOLS)},
    "capture": {MODEL: wishes(CAPTURE)},
    "queue": {MODEL: wishes(QUEUE)},
    "queue of pools": {MODEL: wishes(POOLS, QUEUE)},
    "variant": {BESIDE: beside("{joins: example, role: variant, weight: 1}")},
    "variant on another GPU": {
        BESIDE: beside("{joins: example, role: variant, instance_type: ml.g6.xlarge}")
    },
    "shadow": {BESIDE: beside("{joins: example, role: shadow}")},
    "four GPUs": {MODEL: {"ml.g5.xlarge": "ml.g5.12xlarge"}},
    **{
        f"rollout {name}": {MODEL: wishes(f"rollout: {name}")}
        for name in ("canary", "linear", "rolling", "all-at-once")
    },
    "own key": {
        CLOUD: {"platform:": "kms_key_arn: arn:aws:kms:us-east-1:111122223333:key/a\nplatform:"}
    },
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_endpoints_with_everything_on_are_clean(name, tmp_path):
    found = endpoints(tmp_path, EVERYTHING[name])
    templates = [
        Template(f"{each}.template.json", endpoint_template(deployment, IMAGES), stack=REGION)
        for each, deployment in found.items()
    ]
    assert all("Endpoint" in each.resources for each in templates)
    assert [str(each) for each in checked(templates).findings] == []
