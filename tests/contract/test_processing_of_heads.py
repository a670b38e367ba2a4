"""A user's code around an image classifier inside real Triton.

With the engine of a CPU, and as on a GPU: encoder, plan and head are members of the ensemble, the
plan stood in for.
"""

from __future__ import annotations

import base64
import dataclasses
import json

import numpy as np
import pytest

from container.wire import array_request, arrays_of, image_request
from onboarding.serving_spec import ServingSpec
from tests.contract.conftest import TARGET_HEADER, load, serving
from tests.contract.head_archives import with_stand_in
from tests.fixtures.processing.archive import write_processed_archive
from tests.fixtures.tiny_embedder.archive import IMAGE_CLASSIFIER
from tests.gpu.triton import png

CODE = {
    "open_url.py": """
import base64
import numpy as np

def preprocess(inputs):
    files = []
    for (url,) in inputs["url"]:
        head, _, tail = url.partition(b",")
        if head != b"data:image/png;base64":
            raise ValueError(f"url begins with {head!r:.40}; send a data URL of a PNG file.")
        files.append(base64.b64decode(tail))
    return {"image": np.array(files, object).reshape(-1, 1)}
""",
    "best_label.py": """
def postprocess(outputs):
    return {"best": outputs["labels"][:, :1], "share": outputs["scores"][:, :1]}
""",
}


def tensor(name, datatype="BYTES"):
    return {"name": name, "datatype": datatype, "dims": [1]}


PICTURES = {
    "preprocessing": {"file": "open_url.py", "inputs": [tensor("url")]},
    "postprocessing": {
        "file": "best_label.py",
        "outputs": [tensor("best"), tensor("share", "FP32")],
    },
}
FILES = [png(np.array([[colour]], np.uint8)) for colour in 250 * np.eye(3, dtype=int)]


@pytest.fixture(scope="module")
def server(archive, tmp_path_factory):
    tree = tmp_path_factory.mktemp("code")
    for name, source in CODE.items():
        (tree / name).write_text(source)
    root = tmp_path_factory.mktemp("archives")
    archives = {}
    for name, section, stand_in in (
        ("plain", {}, None),
        ("cpu", PICTURES, None),
        ("gpu", PICTURES, with_stand_in),
    ):
        served = dataclasses.replace(IMAGE_CLASSIFIER.served, model=name)
        variant = dataclasses.replace(IMAGE_CLASSIFIER, served=served)
        spec = ServingSpec.model_validate_json(json.dumps(section))
        write_processed_archive(root / name, variant, spec, tree, stand_in=stand_in)
        archives[name] = root / name
    with serving("triton-mme", archive, tmp_path_factory.mktemp("triton")) as one:
        for name, folder in archives.items():
            answer = load(one.client, folder, name=name, target=f"{name}/model.tar.gz")
            assert answer.status == 200, answer.body
        yield one


def outputs(server, name, request):
    headers = {TARGET_HEADER: f"{name}/model.tar.gz", "Content-Type": request[1]}
    answer = server.client.request("POST", f"/models/{name}/invoke", request[0], headers)
    assert answer.status == 200, answer.body
    return arrays_of(answer.body, answer.headers["content-type"])


def texts(*rows):
    return np.array(rows, object).reshape(-1, 1)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_image_classifier_behind_and_before_own_code(kind, server):
    plain = outputs(server, "plain", image_request(FILES))
    urls = texts(*(b"data:image/png;base64," + base64.b64encode(file) for file in FILES))
    answer = outputs(server, kind, array_request({"url": urls}))
    assert set(answer) == {"best", "share"}
    assert len({*answer["best"][:, 0]}) > 1 and (answer["best"] == plain["labels"][:, :1]).all()
    assert np.allclose(answer["share"], plain["scores"][:, :1], atol=1e-6)
