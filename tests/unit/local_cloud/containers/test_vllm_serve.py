"""AWS's published cases of its vLLM image's variables, and what the local stand-in adds.

Source: aws/deep-learning-containers at e0ecede, test/vllm/test_sagemaker_args.py.
"""

import json
import os

import pytest

from local_cloud.containers import vllm_serve
from local_cloud.containers.vllm_serve import server_arguments

pytestmark = pytest.mark.unit

SPACED = '{"method": "qwen3_5_mtp", "num_speculative_tokens": 1}'
NESTED = '{"image": {"count": 2}, "video": {"count": 1}}'
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
BROKEN = '[{"name":"a","path":}]'
LINES = '{"method": "x",\n "num_speculative_tokens": 1}'
ONE_ADAPTER = '{"name":"translation-v1","path":"/opt/ml/model/loras/translation-v1"}'
ADAPTERS = [
    {"name": name, "path": f"/opt/ml/model/loras/{name}"}
    for name in ("translation-v1", "translation-v2", "summarisation-v1")
]
CASES = {
    "a list of objects is a word for each": (
        "LORA_MODULES",
        json.dumps(ADAPTERS),
        [json.dumps(adapter, separators=(",", ":")) for adapter in ADAPTERS],
    ),
    "one object is one word": ("LORA_MODULES", ONE_ADAPTER, [ONE_ADAPTER]),
    "name=path is not split": ("LORA_MODULES", "v1=/loras/v1", ["v1=/loras/v1"]),
    "a list of strings": ("SERVED_MODEL_NAME", '["primary","alias"]', ["primary", "alias"]),
    "a list of numbers": ("CUDAGRAPH_CAPTURE_SIZES", "[1, 2, 4]", ["1", "2", "4"]),
    "an empty list is no flag": ("CUSTOM_OPS", "[]", None),
    "middleware is one word": ("MIDDLEWARE", "mine.Middleware", ["mine.Middleware"]),
    "one object keeps its spaces": ("SPECULATIVE_CONFIG", SPACED, [SPACED]),
    "a nested object is not split": ("LIMIT_MM_PER_PROMPT", NESTED, [NESTED]),
    "a chat template is no JSON": ("CHAT_TEMPLATE", TEMPLATE, [TEMPLATE]),
    "spaces do not split": ("MODEL", "/opt/ml/model/my model", ["/opt/ml/model/my model"]),
    "broken JSON goes to vLLM as it is": ("LORA_MODULES", BROKEN, [BROKEN]),
    "lines do not split": ("SPECULATIVE_CONFIG", LINES, [LINES]),
    "underscores become dashes": ("TENSOR_PARALLEL_SIZE", "8", ["8"]),
    "true is a bare flag": ("ENABLE_LORA", "true", []),
    "false is no flag": ("ENABLE_LORA", "false", None),
    "nothing is a bare flag": ("ENABLE_LORA", "", []),
}


def arguments(tmp_path, **variables):
    return server_arguments(variables, tmp_path)


@pytest.mark.parametrize(("name", "value", "words"), CASES.values(), ids=CASES)
def test_a_variable_becomes_the_words_that_aws_published(tmp_path, name, value, words):
    flag = f"--{name.lower().replace('_', '-')}"
    found = arguments(tmp_path, **{f"SM_VLLM_{name}": value})
    expected = () if words is None else (flag, *words)
    assert found == ("--port", "8080", *expected)


def test_a_model_of_the_variables_wins_over_the_folder_and_that_over_hugging_face(tmp_path):
    assert arguments(tmp_path) == ("--port", "8080")
    named = {"HF_MODEL_ID": "Qwen/Qwen3-8B"}
    assert arguments(tmp_path, **named)[2:] == ("--model", "Qwen/Qwen3-8B")
    (tmp_path / "config.json").write_text("{}")
    assert arguments(tmp_path, **named)[2:] == ("--model", str(tmp_path))
    found = arguments(tmp_path, SM_VLLM_MODEL="Qwen/Qwen3-4B", SM_VLLM_PORT="8081", **named)
    assert found == ("--port", "8080", "--model", "Qwen/Qwen3-4B", "--port", "8081")


def test_the_model_folder_of_this_machine_stands_for_the_containers(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    started = []
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call))
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path))
    monkeypatch.setenv("SM_VLLM_CHAT_TEMPLATE", "/opt/ml/model/chat.jinja")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    vllm_serve.main()
    ((_, command, variables),) = started
    assert command[command.index("--model") + 1] == str(tmp_path)
    assert command[command.index("--chat-template") + 1] == f"{tmp_path}/chat.jinja"
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert variables["HF_HUB_OFFLINE"] == "1"
