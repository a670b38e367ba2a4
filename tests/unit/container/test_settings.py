"""The process environment of the Python server."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.server.settings import VARIABLES, Settings, SettingsFault, read_settings

ROOT = Path(__file__).parents[3]


def test_settings_default_to_what_sagemaker_needs():
    assert read_settings({"PATH": "/bin", "SAGEMAKER_PROGRAM": "x"}) == Settings()
    defaults = (Settings().model_dir, Settings().address, Settings().port)
    assert defaults == (Path("/opt/ml/model"), "0.0.0.0", 8080)


MULTI_MODEL = {"SAGEMAKER_MULTI_MODEL": "true"}


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"ROUNDHOUSE_QUEUE_ROWS": "x", "ROUNDHOUSE_MAX_REQUEST_ROWS": "5000"},
            r"^ROUNDHOUSE_QUEUE_ROWS is 'x'.*default\.$",  # contradicts no other
        ),
        (
            MULTI_MODEL | {"ROUNDHOUSE_MANIFEST_SHA256": "0" * 64},
            "ROUNDHOUSE_MANIFEST_SHA256 pins one archive, .*; leave it unset",
        ),
        ({"ROUNDHOUSE_SIGNERS": " "}, "ROUNDHOUSE_SIGNERS names no key; name the keys of"),
        ({"ROUNDHOUSE_SIGNERS": "eA=="}, "ROUNDHOUSE_SIGNERS is not the DER SubjectPublicKeyInfo"),
    ],
)
def test_refuses_a_wrong_variable(environ, sentence):
    with pytest.raises(SettingsFault, match=sentence):
        read_settings(environ)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("ROUNDHOUSE_QUEUE_ROWS", text) for text in ("0", "-1", "two", "1.5", "²", "9" * 30)),
        ("SAGEMAKER_BIND_TO_PORT", "65536"),
        ("ROUNDHOUSE_SLOTS", "100000"),
    ],
)
def test_refuses_a_count_that_is_none_or_too_large(name, text):
    sentence = rf"{name} is '{text[:40]}'; it must be a whole number from 1 to \d+"
    with pytest.raises(SettingsFault, match=sentence):
        read_settings({name: text})


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
    words = (
        "ROUNDHOUSE_THREAD is not a setting of this server; did you mean ROUNDHOUSE_THREADS?",
        "PORT is '0'",
        "SLOTS is 'x'",
        "SAGEMAKER_MULTI_MODEL is 'yes'; it must be true, false or unset",
        "MAX_REQUEST_ROWS is 11, more than ROUNDHOUSE_QUEUE_ROWS 10; raise the queue",
    )
    lines = str(caught.value).splitlines()
    assert len(lines) == len(words)
    for word in words:
        assert sum(word in line for line in lines) == 1, word


def test_every_variable_is_documented():
    document = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    assert not [name for name in VARIABLES if f"`{name}`" not in document]


def test_settings_are_read_from_their_variables():
    environ = {
        "SM_MODEL_DIR": "/m",
        "SAGEMAKER_BIND_TO_PORT": "9000",
        "ROUNDHOUSE_BIND_ADDRESS": "127.0.0.1",
        "ROUNDHOUSE_THREADS": "2",
    }
    settings = Settings(model_dir=Path("/m"), port=9000, address="127.0.0.1", threads=2)
    assert read_settings(environ) == settings
