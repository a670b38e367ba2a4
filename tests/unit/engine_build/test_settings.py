"""The process environment."""

from __future__ import annotations

import sys

import pytest

from engine_build.errors import InputRefused
from engine_build.settings import Settings, settings


@pytest.mark.parametrize(
    ("environment", "values"),
    [
        ({"ROUNDHOUSE_SOURCE_COMMIT": "abc"}, {"source_commit": "abc"}),
        ({"ROUNDHOUSE_SOURCE_COMMIT": ""}, {}),
        ({"CODEBUILD_BUILD_IMAGE": "image"}, {"image": "image"}),
        ({"CODEBUILD_BUILD_IMAGE": "image", "ROUNDHOUSE_IMAGE": "own"}, {"image": "own"}),
        ({"ROUNDHOUSE_BENCHMARK_SECONDS": "2"}, {"benchmark_seconds": 2.0}),
        ({"_CUDA_COMPAT_STATUS": "CUDA Driver OK"}, {"forward_compatible": True}),
        ({"_CUDA_COMPAT_STATUS": "CUDA Driver UNAVAILABLE (cuInit(0) returned 803)"}, {}),
        ({"_CUDA_COMPAT_STATUS": ""}, {}),
        ({"ROUNDHOUSE_VLLM_PYTHON": sys.executable}, {"vllm_python": sys.executable}),
        (
            {"ROUNDHOUSE_VLLM_PYTHON": sys.executable, "ROUNDHOUSE_SPEED_ON_CPU": "true"},
            {"vllm_python": sys.executable, "speed_on_cpu": True},
        ),
    ],
)
def test_settings_come_from_the_environment(environment, values):
    assert settings(environment) == Settings(**values)


@pytest.mark.parametrize("seconds", ["soon", "nan", "inf", "-1"])
def test_refuses_seconds_that_are_no_number_or_never_end(seconds):
    words = f"ROUNDHOUSE_BENCHMARK_SECONDS is '{seconds}'; give a number of seconds, 0 or more"
    with pytest.raises(InputRefused, match=words):
        settings({"ROUNDHOUSE_BENCHMARK_SECONDS": seconds})


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"ROUNDHOUSE_VLLM_PYTHON": "/none"}, "ROUNDHOUSE_VLLM_PYTHON is /none, which is no prog"),
        ({"ROUNDHOUSE_SPEED_ON_CPU": "yes"}, "ROUNDHOUSE_SPEED_ON_CPU is 'yes'; give true or"),
        ({"ROUNDHOUSE_SPEED_ON_CPU": "true"}, "ROUNDHOUSE_VLLM_PYTHON names no interpreter; set"),
    ],
)
def test_refuses_an_interpreter_that_is_none(environment, words):
    with pytest.raises(InputRefused, match=words):
        settings(environment)
