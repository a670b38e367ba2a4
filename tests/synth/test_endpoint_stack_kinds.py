"""Typed constructs give exactly the computed template, and cfn-lint finds nothing in it, whatever
kind of endpoint it is.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from aws_cdk import App, Stage

from stacks.endpoint.template import endpoint_faults, endpoint_template
from stacks.endpoint_stack import EndpointStack
from tests.synth.assembly import lint
from tests.synth.endpoint_cases import (
    BESIDE,
    CAPTURE,
    CLOUD,
    IMAGES,
    MODEL,
    POOLS,
    QUEUE,
    beside,
    endpoint_settings,
    endpoints,
)

pytestmark = pytest.mark.synth

NETWORK = """network:
  vpc_id: vpc-0123456789abcdef0
  subnet_ids: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]
  security_group_ids: [sg-0123456789abcdef0]"""
SCHEDULE = {
    "    max: 2": (
        "    max: 2\n    schedule: [{schedule: 'cron(0 6 ? * MON-FRI *)', min: 2, timezone:"
        " Europe/Berlin}]"
    )
}
KINDS = {
    "plain": {},
    "variants": {
        BESIDE: beside(
            "{joins: example, weight: 0.2, instance_type: ml.g6.xlarge, scaling: {min: 2, max: 2}}"
        )
    },
    "shadow": {BESIDE: beside("{joins: example, role: shadow, weight: 0.1}")},
    "pools": {MODEL: endpoint_settings(POOLS)},
    "capture": {MODEL: endpoint_settings(CAPTURE)},
    "dashboard": {MODEL: endpoint_settings("dashboard: true")},
    "queue": {MODEL: {"min: 1": "min: 0", **endpoint_settings(QUEUE)}},
    "queue with pools": {MODEL: endpoint_settings(QUEUE, POOLS)},
    "schedule": {MODEL: SCHEDULE},
    "fixed": {MODEL: {"max: 2": "max: 1"}},
    "linear": {MODEL: endpoint_settings("rollout: linear", "latency_slo_ms: 50")},
    "rolling": {MODEL: endpoint_settings("rollout: rolling")},
    "all at once": {MODEL: endpoint_settings("rollout: all-at-once")},
    "cpu": {MODEL: {"ml.g5.xlarge": "ml.c7i.large"}},
    "open": {
        MODEL: endpoint_settings("network_isolation: false"),
        CLOUD: {"name: cloud": f"name: cloud\n{NETWORK}"},
    },
    "everything": {
        MODEL: endpoint_settings(POOLS, CAPTURE, "latency_slo_ms: 50", "rollout: linear"),
        BESIDE: beside("{joins: example, weight: 0.2, instance_type: ml.g6.xlarge}"),
        "models/third-1.yaml": beside("{joins: example}", name="third-1"),
    },
}


@pytest.fixture(scope="module")
def synthesized(tmp_path_factory) -> dict[str, tuple[dict, Path]]:
    """By kind.

    The pure template of every endpoint, and the file that one pass through the CDK wrote of it.
    """
    folder = tmp_path_factory.mktemp("synthesized")
    app = App(
        outdir=str(folder / "out"),
        analytics_reporting=False,
        context={"@aws-cdk/core:enablePartitionLiterals": True},
    )
    pure = {}
    for kind, changes in KINDS.items():
        stage = Stage(app, kind.title().replace(" ", ""))
        for name, deployment in endpoints(changes).items():
            EndpointStack(stage, f"Endpoint-{name}", deployment=deployment, image_uris=IMAGES)
            pure[f"{kind}: {name}"] = (
                endpoint_template(deployment, IMAGES),
                f"{stage.node.id}Endpoint{name}",
            )
    app.synth()
    files = {
        path.name.split(".")[0][:-8].replace("-", ""): path
        for path in (folder / "out").glob("*/*.template.json")
    }
    return {key: (template, files[stem]) for key, (template, stem) in pure.items()}


def test_constructs_give_exactly_the_computed_template(synthesized):
    assert len(synthesized) == 2 * len(KINDS)
    for template, path in synthesized.values():
        written = json.loads(path.read_text(encoding="utf-8"))
        own_rules = {
            key: rule
            for key, rule in written.get("Rules", {}).items()
            if key != "CheckBootstrapVersion"
        }
        for part in ("Resources", "Outputs", "Conditions"):
            assert written.get(part) == template.get(part)
        assert own_rules == {}


def test_every_kind_of_endpoint_passes_cfn_lint(synthesized):
    paths = {path.read_text(encoding="utf-8"): key for key, (_, path) in synthesized.items()}
    found = [f"{key}: {match}" for text, key in paths.items() for match in lint(text)]
    assert found == []


def test_refuses_to_deploy_an_endpoint_whose_engine_is_not_built(tmp_path):
    deployment = endpoints({})["example"]
    unbuilt = deployment.with_targets(lambda target: dataclasses.replace(target, lock_entry=None))
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    EndpointStack(app, "Endpoint-example", deployment=unbuilt, image_uris=IMAGES)
    app.synth()
    (path,) = (tmp_path / "out").glob("*.template.json")
    written = json.loads(path.read_text(encoding="utf-8"))
    assert [resource["Type"] for resource in written["Resources"].values()] == [
        "AWS::CloudFormation::WaitConditionHandle"
    ]
    (assertion,) = written["Rules"]["EngineIsBuilt"]["Assertions"]
    assert assertion["Assert"] == {"Fn::Equals": [{"Ref": "AWS::Region"}, "engine not built"]}
    assert assertion["AssertDescription"] == endpoint_faults(unbuilt)[0]
