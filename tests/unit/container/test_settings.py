"""The process environment of the Python server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from container.server.settings import VARIABLES, Settings, SettingsFault, read_settings
from onboarding.serve_environment import python_server_environment


def test_settings_default_to_what_sagemaker_needs():
    assert read_settings({"PATH": "/bin", "SAGEMAKER_PROGRAM": "x"}) == Settings()
    assert (Settings().model_dir, Settings().address, Settings().port) == (
        Path("/opt/ml/model"),
        "0.0.0.0",
        8080,
    )


def test_settings_are_read_from_their_variables():
    environ = {
        "SM_MODEL_DIR": "/m",
        "SAGEMAKER_BIND_TO_PORT": "9000",
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "ROUNDHOUSE_THREADS": "2",
    }
    assert read_settings(environ) == Settings(
        model_dir=Path("/m"), port=9000, address="127.0.0.1", threads=2
    )


def test_empty_variable_means_default():
    assert read_settings({"ROUNDHOUSE_THREADS": "", "ROUNDHOUSE_MANIFEST_SHA256": ""}) == Settings()


def test_refuses_unknown_variable_with_the_nearest_known():
    with pytest.raises(
        SettingsFault, match=r"ROUNDHOUSE_THREAD is not a setting.*did you mean ROUNDHOUSE_THREADS"
    ):
        read_settings({"ROUNDHOUSE_THREAD": "2"})


def test_refuses_every_wrong_variable_at_once():
    environ = {
        "ROUNDHOUSE_THREAD": "2",
        "ROUNDHOUSE_SLOTS": "x",
        "SAGEMAKER_BIND_TO_PORT": "0",
        "SAGEMAKER_MULTI_MODEL": "yes",
        "ROUNDHOUSE_QUEUE_ROWS": "10",
        "ROUNDHOUSE_MAX_REQUEST_ROWS": "11",
    }
    with pytest.raises(SettingsFault) as caught:
        read_settings(environ)
    words = ("THREAD is not", "PORT is '0'", "SLOTS is 'x'", "MODEL is 'yes'", "ROWS is 11")
    listed = str(caught.value).splitlines()
    assert len(listed) == len(words)
    for word in words:
        assert sum(word in line for line in listed) == 1, word


def test_wrong_variable_contradicts_no_other():
    with pytest.raises(SettingsFault, match=r"^ROUNDHOUSE_QUEUE_ROWS is 'x'.*default\.$"):
        read_settings({"ROUNDHOUSE_QUEUE_ROWS": "x", "ROUNDHOUSE_MAX_REQUEST_ROWS": "5000"})


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_refuses_a_count_that_is_none(text):
    with pytest.raises(SettingsFault, match="ROUNDHOUSE_QUEUE_ROWS is"):
        read_settings({"ROUNDHOUSE_QUEUE_ROWS": text})


def test_refuses_a_queue_smaller_than_one_request():
    with pytest.raises(SettingsFault, match="raise the queue"):
        read_settings({"ROUNDHOUSE_QUEUE_ROWS": "10", "ROUNDHOUSE_MAX_REQUEST_ROWS": "11"})


def test_refuses_several_processes_before_many_models():
    with pytest.raises(SettingsFault, match="a multi-model server has one process"):
        read_settings({"SAGEMAKER_MULTI_MODEL": "true", "ROUNDHOUSE_HTTP_PROCESSES": "2"})


def test_refuses_to_pin_one_archive_of_many_models():
    with pytest.raises(
        SettingsFault, match=r"ROUNDHOUSE_MANIFEST_SHA256 pins one archive, .*; leave it unset"
    ):
        read_settings({"SAGEMAKER_MULTI_MODEL": "true", "ROUNDHOUSE_MANIFEST_SHA256": "0" * 64})


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("True", True), ("false", False), ("", False)]
)
def test_multi_model_mode_is_what_sagemaker_says(text, expected):
    assert read_settings({"SAGEMAKER_MULTI_MODEL": text}).multi_model is expected


def test_refuses_a_switch_that_is_neither():
    with pytest.raises(
        SettingsFault, match="SAGEMAKER_MULTI_MODEL is 'yes'; it must be true, false or unset"
    ):
        read_settings({"SAGEMAKER_MULTI_MODEL": "yes"})


def test_every_variable_is_documented():
    document = (Path(__file__).parents[3] / "docs" / "reference" / "python-server.md").read_text(
        encoding="utf-8"
    )
    missing = [name for name in VARIABLES if f"`{name}`" not in document]
    assert not missing


def test_libraries_are_spared_before_they_are_imported():
    program = """
from container.server.settings import limit_libraries
limit_libraries()
import numpy, pydantic, re, sys
status = open("/proc/self/status").read()
print(re.search("Threads:.([0-9]+)", status)[1], "importlib.metadata" in sys.modules)
"""
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["1", "False"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SAGEMAKER_BIND_TO_PORT", "65536"),
        ("ROUNDHOUSE_SLOTS", "100000"),
        ("ROUNDHOUSE_QUEUE_ROWS", "9" * 30),
    ],
)
def test_refuses_a_count_that_nothing_can_hold(name, text):
    with pytest.raises(
        SettingsFault, match=rf"{name} is '{text[:40]}'; it must be a whole number from 1 to \d+"
    ):
        read_settings({name: text})


def test_settings_of_an_asynchronous_endpoint_are_taken():
    settings = read_settings(python_server_environment(asynchronous=True))
    assert (settings.max_body_bytes, settings.max_request_rows) == (2**30, 100_000)
    assert (settings.queue_rows, settings.deadline_seconds) == (200_000, 900)
