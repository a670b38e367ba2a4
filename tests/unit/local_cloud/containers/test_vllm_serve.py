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
ORIGINS = '["https://a.example","https://b.example"]'
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
    "objects between spaces are a word each": (
        "LORA_MODULES",
        '{"name":"a","path":"/loras/a"} {"name":"b","path":"/loras/b"}',
        ['{"name":"a","path":"/loras/a"}', '{"name":"b","path":"/loras/b"}'],
    ),
    "one object is one word": ("LORA_MODULES", ONE_ADAPTER, [ONE_ADAPTER]),
    "name=path is not split": ("LORA_MODULES", "v1=/loras/v1", ["v1=/loras/v1"]),
    "a list of strings": ("SERVED_MODEL_NAME", '["primary","alias"]', ["primary", "alias"]),
    "a list of numbers": ("CUDAGRAPH_CAPTURE_SIZES", "[1, 2, 4]", ["1", "2", "4"]),
    "an empty list is no flag": ("CUSTOM_OPS", "[]", None),
    "origins stay one list": ("ALLOWED_ORIGINS", ORIGINS, [ORIGINS]),
    "methods stay one list": ("ALLOWED_METHODS", ORIGINS, [ORIGINS]),
    "headers stay one list": ("ALLOWED_HEADERS", ORIGINS, [ORIGINS]),
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


def test_the_port_comes_first_so_that_a_variable_replaces_it(tmp_path):
    found = arguments(tmp_path, SM_VLLM_PORT="8081", PATH="/usr/bin", HF_TOKEN="secret")
    assert found == ("--port", "8080", "--port", "8081")


def test_a_model_of_the_variables_wins_over_the_folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    found = arguments(tmp_path, SM_VLLM_MODEL="Qwen/Qwen3-8B", HF_MODEL_ID="ignored")
    assert found[2:] == ("--model", "Qwen/Qwen3-8B")


def test_a_folder_with_files_wins_over_hugging_face(tmp_path):
    assert arguments(tmp_path, HF_MODEL_ID="Qwen/Qwen3-8B")[2:] == ("--model", "Qwen/Qwen3-8B")
    (tmp_path / "config.json").write_text("{}")
    assert arguments(tmp_path, HF_MODEL_ID="Qwen/Qwen3-8B")[2:] == ("--model", str(tmp_path))


def test_no_model_anywhere_is_no_argument(tmp_path):
    assert arguments(tmp_path) == ("--port", "8080")


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
