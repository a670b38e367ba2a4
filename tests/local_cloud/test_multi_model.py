"""A multi-model endpoint of our own server: target models make room for one another."""

import io
import json
import tarfile

import pytest
from botocore.exceptions import ClientError

from tests.fixtures.tiny_embedder.archive import write_archive
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


def put_engine(cloud, key, folder):
    """Publishes a tiny network's archive as the build does."""
    write_archive(folder / "model")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        tar.add(folder / "model", arcname=".")
    cloud.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content.getvalue())


def ask(cloud, endpoint, name, body=TEXTS):
    """One request to one target model."""
    return cloud.invoke(
        endpoint, body, TargetModel=f"{name}/model.tar.gz", ContentType="application/json"
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
