"""The local cloud's pace, and what its builds take from the user."""

import pytest

from local_cloud.settings import (
    SECONDS_PER_MINUTE,
    Settings,
    SettingsError,
    build_environment,
    seconds_per_minute,
)

pytestmark = pytest.mark.unit


def test_minute_takes_a_second_unless_set_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv(SECONDS_PER_MINUTE, raising=False)
    assert seconds_per_minute() == 1.0
    monkeypatch.setenv(SECONDS_PER_MINUTE, "60")
    assert seconds_per_minute() == 60
    settings = Settings(root=tmp_path, environments=tmp_path, state=tmp_path, port=1)
    assert settings.scaled_wait(300) == 5.0


@pytest.mark.parametrize("value", ["soon", "0", "-1", "61", "nan"])
def test_refuses_a_pace(monkeypatch, value):
    monkeypatch.setenv(SECONDS_PER_MINUTE, value)
    with pytest.raises(SettingsError, match=f"is '{value}': it takes a number above 0"):
        seconds_per_minute()


def test_build_takes_package_indexes_and_the_length_of_its_benchmark_from_the_user(monkeypatch):
    taken = {"PIP_INDEX_URL": "https://a.example", "ROUNDHOUSE_BENCHMARK_SECONDS": "1"}
    for name, value in {**taken, "ROUNDHOUSE_OTHER": "1", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    found = build_environment()
    assert taken.items() <= found.items() and not {"ROUNDHOUSE_OTHER", "AWS_REGION"} & found.keys()
