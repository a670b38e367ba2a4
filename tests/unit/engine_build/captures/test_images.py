"""Captures of an image classifier, compared from the store to the report."""

from __future__ import annotations

import base64
import datetime
import io
import json
import shutil

import numpy as np
import pytest
import yaml
from PIL import Image, ImageEnhance

from container.triton.images import decoded_image
from engine_build.build import build
from engine_build.captures.__main__ import main
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Networks
from engine_build.ort import OrtNetwork
from engine_build.sources.given_network import encoder_for
from engine_build.store import FolderStore
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from tests.unit.engine_build.pictures import CLASSES, encoded, picture_files
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.test_image_builds import image_tree

pytestmark = pytest.mark.unit
NOW = datetime.datetime(2026, 11, 23, 3, 0, 5, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tree whose image classifier captures, and a store with its network."""
    folder = tmp_path_factory.mktemp("pictures")
    root = image_tree(folder)
    store, runner = FolderStore(folder / "store"), StandInRunner(None)
    tools = context(root, folder / "out", store=store, runner=runner)
    with tools.work:
        build(tools)
    path = root / "models/tiny.yaml"
    document = yaml.safe_load(path.read_text())
    document["endpoint"]["data_capture"] = {"percent": 100}
    path.write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture(scope="module")
def answers(place):
    """The float network's scores by label, best first, as servers answer."""
    (deployment,) = deployments(read_tree(place / "root"), "desk", ("tiny",))
    key = deployment.targets[0].network_keys["float"]
    stores = (FolderStore(place / "work"), FolderStore(place / "store"))
    network = Networks(stores, place / "networks", Log(io.StringIO())).find("float", key)
    session, encoder = OrtNetwork(network.path), encoder_for(network, None)

    def answer(file):
        (logits,) = session.rows(encoder.feed([file])).astype(np.float64)
        scores = np.exp(logits) / np.exp(logits).sum()
        order = np.argsort(-scores)
        return [{"label": CLASSES[index], "score": float(scores[index])} for index in order]

    return answer


def compare(place, tmp_path, files, outputs):
    store = tmp_path / "store"
    shutil.copytree(place / "store", store)
    lines = [
        {
            "captureData": {
                "endpointInput": {
                    "data": base64.b64encode(file).decode(),
                    "encoding": "BASE64",
                    "observedContentType": "image/jpeg",
                },
                "endpointOutput": {
                    "data": json.dumps({"outputs": [output]}),
                    "encoding": "JSON",
                    "observedContentType": "application/json",
                },
            }
        }
        for file, output in zip(files, outputs, strict=True)
    ]
    path = store / "captures/desk-tiny/AllTraffic/2026/11/23/02/a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out, err = io.StringIO(), io.StringIO()
    where = ["--root", str(place / "root"), "--store", str(store), "--out", str(tmp_path / "out")]
    which = ["--environment", "desk", "--endpoint", "tiny", "--format", "json"]
    assert main([*where, *which], out, err, now=NOW) == 0, err.getvalue()
    (report,) = json.loads(out.getvalue())
    drifted = {item["name"] for item in report["inputs"]["distances"] if item["has_drifted"]}
    return report, drifted


def test_sound_answers_to_usual_images_pass_without_drift(place, answers, tmp_path):
    files = picture_files(120, seed=11)
    report, drifted = compare(place, tmp_path, files, map(answers, files))
    assert (report["accuracy"]["verdict"], drifted) == ("pass", set())
    assert len(report["inputs"]["distances"]) == 4


def test_answers_of_another_model_fail_the_budget(place, answers, tmp_path):
    files = picture_files(120, seed=12)
    others = [
        [item | {"score": row[-1 - place]["score"]} for place, item in enumerate(row)]
        for row in map(answers, files)
    ]
    report, _ = compare(place, tmp_path, files, others)
    assert report["accuracy"]["verdict"] == "fail"


def test_large_dark_images_and_a_damaged_one_drift(place, answers, tmp_path):
    files = []
    for file in picture_files(120, seed=13):
        large = decoded_image(file).resize((300, 200), Image.Resampling.BILINEAR)
        files.append(encoded(ImageEnhance.Brightness(large).enhance(0.3)))
    report, drifted = compare(
        place, tmp_path, [*files, files[0][:90]], [*map(answers, files), {"error": "no image"}]
    )
    assert {"width of an image", "height of an image", "brightness of an image"} <= drifted
    assert report["accuracy"]["verdict"] == "pass"
