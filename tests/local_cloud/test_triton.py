"""Real Triton in the local cloud.

`serve` of NVIDIA's image, played by triton_serve, single- and multi-model.
"""

import json

import pytest
from botocore.exceptions import ClientError

from local_cloud.containers import triton_serve
from tests.local_cloud.account import (
    ACCOUNT,
    BUCKET,
    CREATED,
    archive,
    endpoint_resources,
    wait_until_gone,
)

pytestmark = pytest.mark.local_cloud
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/roundhouse-local/triton:1"
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "number" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "sum" data_type: TYPE_FP32 dims: [1] }]
instance_group [{ kind: KIND_CPU }]
"""
MODEL = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("sum", pb.get_input_tensor_by_name(request, "number").as_numpy() + ADDED)])
                for request in requests]
"""
REQUEST = json.dumps(
    {"inputs": [{"name": "number", "shape": [1, 1], "datatype": "FP32", "data": [40.0]}]}
).encode()


def put_adder(cloud, key, added):
    files = {
        "adder/config.pbtxt": CONFIG,
        "adder/1/model.py": MODEL.replace("ADDED", str(added)),
        "manifest.json": "{}",
    }
    cloud.client("s3").put_object(Bucket=BUCKET, Key=key, Body=archive(files))
    return f"s3://{BUCKET}/{key}"


def test_single_model_endpoint_answers(cloud):
    url = put_adder(cloud, "adder/model.tar.gz", 2)
    assert cloud.deploy("adder", endpoint_resources("adder", url, image=IMAGE)) == CREATED
    answer = cloud.invoke("adder", REQUEST, ContentType="application/json")
    assert answer["outputs"][0]["data"] == [42.0]
    cloud.destroy("adder")
    assert wait_until_gone("adder")


def test_multi_model_endpoint_answers_by_target_model(cloud):
    for name, added in (("one", 1), ("two", 2)):
        put_adder(cloud, f"adders/{name}/model.tar.gz", added)
    resources = endpoint_resources("adders", "s3://engines/adders/", mode="MultiModel", image=IMAGE)
    assert cloud.deploy("adders", resources) == CREATED
    for name, total in (("one", 41.0), ("two", 42.0), ("one", 41.0)):
        answer = cloud.invoke(
            "adders", REQUEST, TargetModel=f"{name}/model.tar.gz", ContentType="application/json"
        )
        assert answer["outputs"][0]["data"] == [total]
    with pytest.raises(ClientError, match="ModelError"):
        cloud.invoke(
            "adders", b"{}", TargetModel="one/model.tar.gz", ContentType="application/json"
        )
    cloud.destroy("adders")


@pytest.mark.parametrize(
    ("folders", "named", "message"),
    [
        ((), None, "the archive holds 0 models"),
        (("a", "b"), None, r"holds 2 models \(a, b\): .* names the one to load"),
        (("a", "b"), "c", "=c is not in the archive, which holds a, b"),
        (("config.pbtxt",), None, "lies at the root of .*: a single-model archive keeps it in"),
    ],
)
def test_refuses_an_archive_without_one_clear_model(tmp_path, folders, named, message):
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(triton_serve.ServeError, match=message):
        triton_serve.single_model(named, tmp_path)
