"""Captures of a built embedder, compared from the store to the report and the metrics."""

from __future__ import annotations

import datetime
import io
import json
import shutil

import numpy as np
import pytest
import yaml

from engine_build.captures.__main__ import main
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Networks
from engine_build.ort import OrtNetwork
from engine_build.sources.given_network import encoder_for
from engine_build.store import FolderStore
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from tests.unit.engine_build.tiny import model, sample_texts

pytestmark = pytest.mark.unit
NOW = datetime.datetime(2026, 11, 23, 3, 0, 5, tzinfo=datetime.UTC)


class CloudWatch:
    def __init__(self):
        self.values = {}

    def put_metric_data(self, *, Namespace, MetricData):
        assert Namespace == "Roundhouse/Captures"
        for item in MetricData:
            named = {part["Name"]: part["Value"] for part in item["Dimensions"]}
            assert named == {"EndpointName": "desk-tiny", "VariantName": "AllTraffic"}
            self.values[item["MetricName"]] = item["Value"]


@pytest.fixture(scope="module")
def place(tiny_build, tmp_path_factory):
    """A tree whose model captures, and a store with its networks."""
    folder = tmp_path_factory.mktemp("captures")
    shutil.copytree(tiny_build.root, folder / "root")
    endpoint = {"instance_type": "ml.c7i.large", "data_capture": {"percent": 100}}
    path = folder / "root" / "models" / "tiny.yaml"
    path.write_text(yaml.safe_dump(model(endpoint=endpoint)))
    shutil.copytree(tiny_build.store / "networks", folder / "store" / "networks")
    return folder


@pytest.fixture(scope="module")
def answers(place):
    """The float network's own answers to texts."""
    (deployment,) = deployments(read_tree(place / "root"), "desk", ("tiny",))
    key = deployment.targets[0].network_keys["float"]
    stores = (FolderStore(place / "work"), FolderStore(place / "store"))
    network = Networks(stores, place / "networks", Log(io.StringIO())).find("float", key)
    session, encoder = OrtNetwork(network.path), encoder_for(network, 16)
    return lambda texts: session.rows(encoder.feed(texts))


def capture(store, texts, rows):
    def side(document):
        return {"data": json.dumps(document), "encoding": "JSON", "observedContentType": "x/json"}

    lines = (
        {
            "captureData": {
                "endpointInput": side({"inputs": [text]}),
                "endpointOutput": side({"outputs": [np.asarray(row).tolist()]}),
            }
        }
        for text, row in zip(texts, rows, strict=True)
    )
    path = store / "captures/desk-tiny/AllTraffic/2026/11/23/02/a.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def compare(place, tmp_path, texts, rows, *extra):
    store = tmp_path / "store"
    shutil.copytree(place / "store", store)
    if texts:
        capture(store, texts, rows)
    out, err, cloudwatch = io.StringIO(), io.StringIO(), CloudWatch()
    where = ["--root", str(place / "root"), "--store", str(store), "--out", str(tmp_path / "out")]
    which = ["--environment", "desk", "--endpoint", "tiny", "--format", "json", "--publish"]
    code = main([*where, *which, *extra], out, err, now=NOW, cloudwatch=cloudwatch)
    assert code == 0, err.getvalue()
    (report,) = json.loads(out.getvalue())
    files = sorted((store / "capture-reports").rglob("*.*"))
    return report, cloudwatch.values, files, out.getvalue() + err.getvalue()


def test_sound_answers_to_usual_texts_pass_without_drift(place, answers, tmp_path):
    texts = sample_texts(150, seed=11)
    report, values, files, printed = compare(place, tmp_path, texts, answers(texts))
    assert report["accuracy"]["verdict"] == "pass"
    assert report["accuracy"]["record"]["metric"] == "cosine"
    assert values["CapturedRows"] == 150 and values["Accuracy"] == pytest.approx(1)
    assert values["InputDrift"] < 0.25
    assert [path.suffix for path in files] == [".json", ".md"]
    texts_of_all = printed + "".join(path.read_text() for path in files)
    assert not any(text in texts_of_all for text in texts)


def test_answers_of_another_model_fail_the_budget(place, answers, tmp_path):
    texts = sample_texts(150, seed=12)
    noise = np.random.default_rng(0).standard_normal((150, 32))
    report, values, _, _ = compare(
        place, tmp_path, texts, answers(texts) + noise, "--sample", "120"
    )
    assert report["accuracy"]["verdict"] == "fail"
    assert report["accuracy"]["record"]["samples"] == 120
    assert values["AccuracyUpperBound"] < 0.98


def test_long_texts_of_unknown_words_drift(place, answers, tmp_path):
    texts = [f"zug {number} steht bereit " * 4 for number in range(150)]
    report, values, files, _ = compare(place, tmp_path, texts, answers(texts))
    drifted = {item["name"] for item in report["inputs"]["distances"] if item["has_drifted"]}
    assert drifted == {"tokens of a text", "share of unknown tokens"}
    assert values["InputDrift"] > 1 and "| drifted |" in files[1].read_text()


@pytest.mark.parametrize("count", [0, 30])
def test_few_captures_say_nothing_and_have_no_metric(place, answers, tmp_path, count):
    texts = sample_texts(count, seed=13) if count else []
    report, values, files, _ = compare(place, tmp_path, texts, answers(texts) if count else [])
    assert report["accuracy"]["verdict"] == "not enough data"
    assert report["inputs"]["enough_data"] is False
    assert values == {"CapturedRows": count}
    assert "Not enough data" in files[1].read_text()


def test_refuses_an_endpoint_that_captures_nothing(tiny_build, tmp_path):
    err = io.StringIO()
    where = ["--root", str(tiny_build.root), "--store", str(tmp_path), "--out", str(tmp_path)]
    which = ["--environment", "desk", "--endpoint", "tiny"]
    assert main([*where, *which], io.StringIO(), err, now=NOW) == 1
    assert "captures nothing; give it endpoint.data_capture" in err.getvalue()
