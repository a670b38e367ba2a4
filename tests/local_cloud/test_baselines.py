"""Torch answers beside the present engine in the local cloud: as a share, and as a shadow."""

import json
import subprocess
import tarfile

import numpy as np
import pytest

from tests.contract.conftest import BASELINE, PYTHON
from tests.local_cloud.account import (
    BUCKET,
    IMAGE,
    MARK,
    ROLE,
    ROOT,
    endpoint_config,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud
RUNTIMES = ("onnxruntime", "pytorch")
IMAGES = {
    "onnxruntime": IMAGE.replace("test-server", "python-server"),
    "pytorch": IMAGE.replace("test-server", "python-server-baseline"),
}


@pytest.fixture(scope="module")
def baselines(tmp_path_factory):
    root = tmp_path_factory.mktemp("baselines")
    python = str(PYTHON[BASELINE] / "bin" / "python")
    argv = [python, "-m", "tests.contract.baseline_archives", str(root), *RUNTIMES]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return root


@pytest.fixture
def models(cloud, baselines):
    """Models of both runtimes, each with the image that `serving.runtime` chooses."""
    sagemaker, s3 = cloud.client("sagemaker"), cloud.client("s3")
    for runtime in RUNTIMES:
        packed = baselines / f"{runtime}.tar.gz"
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(baselines / runtime / "archive", arcname=".")
        s3.upload_file(str(packed), BUCKET, f"rival/{runtime}.tar.gz")
        container = {
            "Image": IMAGES[runtime],
            "ModelDataUrl": f"s3://{BUCKET}/rival/{runtime}.tar.gz",
            "Environment": {MARK: "rival"},
        }
        sagemaker.create_model(
            ModelName=f"rival-{runtime}", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
    yield
    sagemaker.delete_endpoint(EndpointName="rival")
    assert wait_until_gone("rival")
    sagemaker.delete_endpoint_config(EndpointConfigName="rival-1")
    for runtime in RUNTIMES:
        sagemaker.delete_model(ModelName=f"rival-{runtime}")


def start(cloud, key):
    """An endpoint of ONNX Runtime with a variant of PyTorch beside it."""
    config = endpoint_config("rival", variant={"ModelName": "rival-onnxruntime"})
    beside = {"VariantName": "torch", "ModelName": "rival-pytorch", "InitialVariantWeight": 1.0}
    first = config["ProductionVariants"][0] | {"InitialVariantWeight": 1.0}
    config["ProductionVariants"] = [first]
    config[key] = [*config.get(key, []), first | beside]
    cloud.client("sagemaker").create_endpoint_config(**config)
    cloud.client("sagemaker").create_endpoint(EndpointName="rival", EndpointConfigName="rival-1")
    cloud.wait_for("rival")


def ask(cloud, texts, **options):
    body = json.dumps({"inputs": texts}).encode()
    answer = cloud.invoke("rival", body, ContentType="application/json", **options)
    return np.array(answer["outputs"] if isinstance(answer, dict) else answer)


def test_torch_takes_a_share_of_the_traffic_and_answers_as_the_source(cloud, models, baselines):
    texts = json.loads((baselines / "texts.json").read_text())[:4]
    expected = np.load(baselines / "vectors.npy")[:4]
    start(cloud, "ProductionVariants")
    for variant in ("AllTraffic", "torch"):
        assert np.abs(ask(cloud, texts, TargetVariant=variant) - expected).max() < 1e-4


def test_torch_gets_copies_as_a_shadow(cloud, models, baselines):
    texts = json.loads((baselines / "texts.json").read_text())[:2]
    start(cloud, "ShadowProductionVariants")
    ask(cloud, texts)
    (log,) = cloud.state.glob("endpoints/*-rival-*/torch-1/server.log")
    assert until(lambda: "Serving tiny" in log.read_text())
