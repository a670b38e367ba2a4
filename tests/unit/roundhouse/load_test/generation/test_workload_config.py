"""`roundhouse bench --export-workload`: a request that SageMaker's service model accepts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from roundhouse.aws.shapes import require_valid
from roundhouse.cli import app as cli
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.generation.workload_config import OPERATION
from tests.unit.onboarding.text_generation.shapes import COMMIT, FIXTURES, generator_tree

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
MEANS = BASE.replace("output_p95: 400", "output_p95: 400, prompt_mean: 1200, output_mean: 150")


def export(tmp_path, *words, text=MEANS):
    root, file = generator_tree(tmp_path / "tree", text), tmp_path / "workload.json"
    command = ["bench", "chat", "--env", "cloud", "--root", str(root)]
    result = CliRunner().invoke(cli.app, [*command, "--export-workload", str(file), *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    request = json.loads(file.read_text())
    inline = json.loads(request["AIWorkloadConfigs"]["WorkloadSpec"]["Inline"])
    return result, request, inline


def test_without_a_load_it_searches_for_the_slo(tmp_path):
    result, request, inline = export(tmp_path)
    assert "create-ai-workload-config --cli-input-json" in " ".join(result.output.split())
    assert request["AIWorkloadConfigName"] == "chat"
    assert inline == {
        "benchmark": {"type": "aiperf"},
        "parameters": {
            "model": "chat", "tokenizer": "acme/chat", "streaming": True, "random_seed": 1,
            "prompt_input_tokens_mean": 1200, "prompt_input_tokens_stddev": 972,
            "output_tokens_mean": 150, "output_tokens_stddev": 138,
            "extra_inputs": "ignore_eos:true", "search_recipe": "max-concurrency-under-sla",
            "ttft_sla_ms": 2500, "tpot_sla_ms": 80, "search_stat": "p95", "concurrency_min": 1,
            "concurrency_max": 64, "search_max_iterations": 15,
        },
    }  # fmt: skip
    assert COMMIT not in json.dumps(inline)


def test_a_load_is_that_of_the_options(tmp_path):
    words = ("--concurrency", "1,8", "--requests", "100", "--lengths", "chat", "--seed", "3")
    _, _, inline = export(tmp_path, *words)
    found = inline["parameters"]
    assert (found["concurrency"], found["request_count"], found["random_seed"]) == ([1, 8], 100, 3)
    assert (found["prompt_input_tokens_mean"], found["prompt_input_tokens_stddev"]) == (500, 0)
    assert "search_recipe" not in found


def test_refuses_prompts_of_a_file(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n')
    with pytest.raises(RoundhouseError, match="reads prompts from S3"):
        export(tmp_path, "--input", str(tmp_path / "a.jsonl"))


def test_refuses_what_the_service_model_does_not_know():
    with pytest.raises(RoundhouseError, match=f"no {OPERATION} of SageMaker: .*AIWorkloadConfigs"):
        require_valid(OPERATION, "input_shape", {"AIWorkloadConfigName": "a", "b": 1})
