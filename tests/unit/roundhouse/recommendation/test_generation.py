"""`roundhouse recommend --import`: a job's recommendations under our rules."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from roundhouse.cli import app as cli
from roundhouse.errors import RoundhouseError
from roundhouse.recommendation.generation import engine_arguments, read_job
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
IMAGE = (
    "763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
)


def recommendation(instance_type="ml.g6e.2xlarge", *, copies=1, instances=2, image=IMAGE, **env):
    return {
        "RecommendationDescription": "lowest cost",
        "DeploymentConfiguration": {
            "ImageUri": image,
            "InstanceType": instance_type,
            "InstanceCount": instances,
            "CopyCountPerInstance": copies,
            "EnvironmentVariables": env,
        },
        "ExpectedPerformance": [
            {"Metric": "ttft-ms", "Stat": "p95", "Value": "310", "Unit": "Milliseconds"}
        ],
    }


def job(*recommendations, status="Completed") -> dict:
    account = "arn:aws:sagemaker:us-east-1:111122223333"
    return {
        "AIRecommendationJobName": "chat",
        "AIRecommendationJobArn": f"{account}:ai-recommendation-job/chat",
        "AIRecommendationJobStatus": status,
        "ModelSource": {"S3": {"S3Uri": "s3://bucket/checkpoints/"}},
        "OutputConfig": {"S3OutputLocation": "s3://bucket/results/"},
        "AIWorkloadConfigIdentifier": "chat",
        "PerformanceTarget": {"Constraints": [{"Metric": "cost"}]},
        "RoleArn": "arn:aws:iam::111122223333:role/recommender",
        "CreationTime": "2026-11-20T10:00:00Z",
        "Recommendations": list(recommendations),
    }


def imported(tmp_path, document, *words, text=BASE):
    root, file = generator_tree(tmp_path / "tree", text), tmp_path / "job.json"
    file.write_text(json.dumps(document))
    command = ["recommend", "chat", "--env", "cloud", "--root", str(root), "--import", str(file)]
    return CliRunner().invoke(cli.app, [*command, *words])


def plans(tmp_path, *recommendations, text=BASE) -> list[dict]:
    result = imported(tmp_path, job(*recommendations), "--format", "json", text=text)
    return json.loads(result.output)


def test_a_plan_like_ours_holds(tmp_path):
    (plan,) = plans(
        tmp_path, recommendation(instances=1, SM_VLLM_TENSOR_PARALLEL_SIZE="1", HF_MODEL_ID="a/b")
    )
    assert plan["holds"] and plan["refusals"] == [] and plan["differences"] == []
    assert plan["candidate"]["instance_type"] == "ml.g6e.2xlarge"
    assert plan["expected"] == ["ttft-ms p95 310 Milliseconds"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (recommendation("ml.g5.12xlarge", SM_VLLM_TENSOR_PARALLEL_SIZE="3"), "leaves 1 of the 4"),
        (recommendation("ml.g5.xlarge", SM_VLLM_TENSOR_PARALLEL_SIZE="2"), "needs more GPUs"),
        (
            recommendation("ml.g5.12xlarge", copies=3, OPTION_TENSOR_PARALLEL_DEGREE="2"),
            "3 copies of 2 GPUs each do not fit the 4 GPUs",
        ),
        (recommendation(OPTION_QUANTIZE="fp8"), "would quantize while the server starts"),
        (recommendation(SM_VLLM_MAX_MODEL_LEN="2048"), "above 'context.max_model_len'"),
        (recommendation(SM_VLLM_NO_SUCH_FLAG="1"), "has no argument --no-such-flag"),
        (recommendation(SM_VLLM_CHAT_TEMPLATE="x" * 1025), "has 1025 bytes"),
        (recommendation(SM_VLLM_GPU_MEMORY_UTILIZATION="1.5"), "gpu_memory_utilization"),
        (recommendation("ml.g5.xlarge", instances=1), "need"),
        (recommendation("ml.g5.xlarge", SM_VLLM_KV_CACHE_DTYPE="fp8"), "an FP8 KV cache"),
    ],
    ids=[
        "idle GPUs", "too few GPUs", "copies", "quantized at start", "too short", "unknown flag",
        "long variable", "share of memory", "concurrency", "no FP8",
    ],
)  # fmt: skip
def test_refuses_what_check_would_refuse(found, reason, tmp_path):
    (plan,) = plans(tmp_path, found)
    assert not plan["holds"]
    assert reason in " ".join(plan["refusals"])


def test_differences_from_our_plan_are_named(tmp_path):
    (plan,) = plans(tmp_path, recommendation("ml.g6e.12xlarge", copies=4, instances=1))
    assert plan["differences"] == [
        "instance type ml.g6e.12xlarge, ours ml.g6e.2xlarge",
        "copies of an instance 4, ours 1",
    ]


def test_an_image_without_a_row_and_settings_of_lmi_are_named(tmp_path):
    found = recommendation(
        image="r/djl-inference:9.9", OPTION_ASYNC_MODE="true", OPTION_ROLLING_BATCH="disable"
    )
    (plan,) = plans(tmp_path, found)
    assert plan["notes"] == [
        "its image djl-inference:9.9 has no row: checked with the file's platform",
        "settings of DJL Serving, not checked: async_mode, rolling_batch",
    ]


def test_the_table_says_which_hold_and_why_the_others_do_not(tmp_path):
    both = job(recommendation(), recommendation(OPTION_QUANTIZE="fp8"))
    result = imported(tmp_path, both)
    text = " ".join(result.output.split())
    assert result.exit_code == 0 and "Our rules accept 1 of 2 recommendations." in text
    assert "2: refused: 'serving.arguments.quantization'" in text
    assert "the job expects ttft-ms p95 310 Milliseconds" in text


def test_nothing_that_holds_ends_with_exit_code_6(tmp_path):
    assert imported(tmp_path, job(recommendation(OPTION_QUANTIZE="fp8"))).exit_code == 6


def test_names_of_lmi_are_vllms():
    assert engine_arguments(
        {
            "OPTION_MAX_ROLLING_BATCH_SIZE": "64",
            "TENSOR_PARALLEL_DEGREE": "max",
            "SERVING_FAIL_FAST": "true",
        }
    ) == {"max_num_seqs": "64", "tensor_parallel_degree": "max"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"a": 1}', "no DescribeAIRecommendationJob of SageMaker"),
        (json.dumps(job(status="Failed")), "the job is Failed and has no recommendation"),
    ],
)
def test_refuses_a_file_that_is_no_answer(text, reason, tmp_path):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(RoundhouseError, match=reason):
        read_job(tmp_path / "job.json")
