"""Multi-model endpoints: target models are loaded when asked for, and make room for one another."""

import io
import json
import tarfile

import pytest
from botocore.exceptions import ClientError

from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, SIZE, write_archive
from tests.local_cloud.account import (
    ACCOUNT,
    BUCKET,
    CREATED,
    endpoint_resources,
    until,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud
IMAGES = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local"
TEXTS = json.dumps({"inputs": ["a dog", "the cat"]}).encode()
TENSORS = {
    "inputs": [
        {"name": "signal", "shape": [1, 2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]},
        {"name": "gain", "shape": [1, 1], "datatype": "INT64", "data": [2]},
    ]
}


@pytest.fixture(scope="module")
def multi_model(cloud):
    for name in ("a", "b", "c"):
        cloud.put_archive(f"shared/{name}/model.tar.gz", f"I am {name}")
    resources = endpoint_resources(
        "shared", "s3://engines/shared/", mode="MultiModel", environment={"MODELS_HELD": "2"}
    )
    assert cloud.deploy("shared", resources) == CREATED
    yield cloud
    cloud.destroy("shared")
    assert wait_until_gone("shared")


def test_target_models_answer_each_for_itself(multi_model):
    for name in ("a", "b"):
        answer = multi_model.invoke("shared", TargetModel=f"{name}/model.tar.gz")
        actual = (answer["greeting"], answer["target_model"])
        assert actual == (f"I am {name}", f"{name}/model.tar.gz")


def test_least_recently_used_target_model_is_unloaded_for_another(multi_model):
    for name in ("a", "b", "a", "c", "a", "b"):
        answer = multi_model.invoke("shared", TargetModel=f"{name}/model.tar.gz")
        assert answer["greeting"] == f"I am {name}"
        assert answer["loaded"] <= 2


def test_refuses_an_invocation_without_target_model(multi_model):
    with pytest.raises(ClientError, match="TargetModel is required"):
        multi_model.invoke("shared")


def put_engine(cloud, key, folder, tiny=EMBEDDER, **changes):
    """Publishes a tiny network's archive as the build does."""
    write_archive(folder / "model", tiny, **changes)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        tar.add(folder / "model", arcname=".")
    cloud.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content.getvalue())


def ask(cloud, endpoint, name, body=TEXTS):
    """One request to one target model."""
    return cloud.invoke(
        endpoint, body, TargetModel=f"{name}/model.tar.gz", ContentType="application/json"
    )


@pytest.fixture(scope="module")
def python(cloud, tmp_path_factory):
    """A multi-model endpoint of our own server on a CPU instance."""
    folder = tmp_path_factory.mktemp("python")
    put_engine(cloud, "python/texts/model.tar.gz", folder / "texts")
    put_engine(cloud, "python/tensors/model.tar.gz", folder / "tensors", ARITHMETIC)
    put_engine(cloud, "python/large/model.tar.gz", folder / "large", host_memory_mib=1e9)
    put_engine(cloud, "python/foreign/model.tar.gz", folder / "foreign", compute_capability="9.0")
    resources = endpoint_resources(
        "python", "s3://engines/python/", mode="MultiModel", image=f"{IMAGES}/python-server:1"
    )
    assert cloud.deploy("python", resources) == CREATED
    yield cloud
    cloud.destroy("python")
    assert wait_until_gone("python")


def test_python_server_loads_target_models_at_their_first_request(python):
    for _ in range(2):
        vectors = ask(python, "python", "texts")["outputs"]
        assert [len(vector) for vector in vectors] == [SIZE, SIZE]
        answer = ask(python, "python", "tensors", json.dumps(TENSORS).encode())
        assert {output["name"] for output in answer["outputs"]} == {"scaled", "positive", "count"}


def test_refuses_a_target_model_that_python_server_cannot_find_and_answers_the_next(python):
    with pytest.raises(
        ClientError,
        match=r"Failed to download model data\(bucket: engines, key: python/none/model.tar.gz\)",
    ):
        ask(python, "python", "none")
    with pytest.raises(
        ClientError, match=r"the engine was made for compute capability 9\.0, this server runs cpu"
    ):
        ask(python, "python", "foreign")
    assert ask(python, "python", "texts")


def test_refuses_a_target_model_that_fits_after_no_unloading_and_loads_the_others_again(python):
    with pytest.raises(
        ClientError, match=r"'[0-9a-f]{32}' takes 1000000000 MiB and .* unload others first"
    ) as error:
        ask(python, "python", "large")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] >= 400
    assert ask(python, "python", "texts") and ask(
        python, "python", "tensors", json.dumps(TENSORS).encode()
    )


def test_python_server_unloads_models_where_memory_is_short(cloud, tmp_path):
    names = [f"model-{number}" for number in range(12)]
    for name in names:
        put_engine(cloud, f"tight/{name}/model.tar.gz", tmp_path / name)
    resources = endpoint_resources(
        "tight", "s3://engines/tight/", mode="MultiModel", image=f"{IMAGES}/tight-server:1"
    )
    assert cloud.deploy("tight", resources) == CREATED
    unloaded, deaths = False, []
    for name in (*names, *names[:3], *names):
        answer = until(lambda name=name: answer_or_none(cloud, name, deaths))
        assert len(answer["outputs"]) == 2
        logs = cloud.state.glob("endpoints/*-tight-*/*/server.log")
        unloaded |= any("load_out_of_memory" in log.read_text() for log in logs)
    cloud.destroy("tight")
    assert wait_until_gone("tight")
    assert unloaded and len(deaths) <= 9, deaths


def answer_or_none(cloud, name, deaths):
    """What the tight server answers; None while another takes the place of one that died.

    A native thread that finds no address space ends the process, and what is left may be too little
    for a request.
    """
    try:
        return ask(cloud, "tight", name)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ServiceUnavailable":
            return None
        if error.response.get("OriginalStatusCode") not in (0, 507):
            raise
        deaths.append(str(error))
        return None
