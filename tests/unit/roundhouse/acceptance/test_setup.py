"""The tree of an acceptance run: valid on a GPU and on a CPU, and apart from every other."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import artifact_bucket
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.acceptance.setup import ENVIRONMENT, NETWORK, new_setup, write_tree
from roundhouse.acceptance.tiny_network import tokenizer
from roundhouse.acceptance.tiny_texts import SPECIAL, TEXTS, VOCABULARY, shuffled_texts

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[4]
NETWORK_FILE = ROOT / "tests" / "fixtures" / "tiny_embedder" / "model.onnx"
VPC = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_ids": ["subnet-1"],
    "security_group_ids": ["sg-1"],
}


def environment(name, **changes):
    text = (ROOT / "environments" / f"{name}.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text) | changes
    return EnvironmentSpec.model_validate_json(json.dumps(document))


def written_tree(folder, setup):
    place = folder / NETWORK
    place.parent.mkdir(parents=True)
    place.write_bytes(NETWORK_FILE.read_bytes())
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    place.with_name("tokenizer.json").write_text(json.dumps(tokenizer()), encoding="utf-8")
    write_tree(folder, setup, digest, shuffled_texts())
    return read_tree(folder)


@pytest.mark.parametrize(
    ("changes", "routes"),
    [
        ({}, {"python": "gpu", "portable": "gpu", "cached": "gpu", "triton": "training-job"}),
        (
            {"region": "eu-north-1"},
            dict.fromkeys(("python", "portable", "cached", "triton"), "training-job"),
        ),
        (
            {"platform": "triton-26.06"},
            {"python": "gpu", "portable": "gpu", "triton": "training-job"},
        ),
    ],
)
def test_gpu_environment_builds_an_engine_a_route_and_deploys_one_a_server(
    tmp_path, changes, routes
):
    setup = new_setup(environment("dev", **changes), in_local_cloud=False)
    assert {model.name: model.route for model in setup.models} == routes
    assert {model.name: model.server for model in setup.deployed} == {
        "python": "python",
        "triton": "triton",
    }
    tree = written_tree(tmp_path, setup)
    assert [str(fault) for fault in tree.faults] == []
    found = deployments(tree, ENVIRONMENT)
    assert {item.name for item in found} == set(routes)
    assert {item.environment.account for item in found} == {"111122223333"}


def test_local_environment_builds_both_engines_on_a_cpu(tmp_path):
    setup = new_setup(environment("local"), in_local_cloud=True)
    assert {(model.name, model.route) for model in setup.models} == {
        ("python", "cpu"),
        ("triton", "cpu"),
    }
    assert [str(fault) for fault in written_tree(tmp_path, setup).faults] == []


def test_nothing_of_the_environment_is_shared():
    origin = environment(
        "dev", alarm_email="team@example.com", network=VPC | {"vpc_endpoints": True}
    )
    setup = new_setup(origin, in_local_cloud=False)
    own = setup.environment
    assert artifact_bucket(own) != artifact_bucket(origin)
    assert {setup.endpoint(model) for model in setup.deployed} == {
        "acceptance-python",
        "acceptance-triton",
    }
    assert own.alarm_email is None and own.github is None and own.promotes_from is None
    assert own.network is not None and not own.network.vpc_endpoints
    assert own.builds.timeout_minutes == 30


def test_every_word_of_the_texts_is_known_and_no_text_is_there_twice():
    assert {word for text in TEXTS for word in text.split()} <= set(VOCABULARY) - set(SPECIAL)
    assert len(set(shuffled_texts())) == len(TEXTS)
