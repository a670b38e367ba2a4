"""`roundhouse check-captures`: the command that it runs, and what it makes of the report."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from onboarding.environment_spec import EnvironmentSpec
from roundhouse.cli.check_captures import compare, faults, format_report
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Outcome

pytestmark = pytest.mark.unit

DISTANCE = {"name": "tokens of a text", "index": 0.4, "noise": 0.1, "has_drifted": True}
REPORT = {
    "endpoint": "dev-search",
    "variant": "AllTraffic",
    "requests": 150,
    "rows": 300,
    "unread": {"it is no JSON": 2},
    "inputs": {"enough_data": True, "distances": [DISTANCE]},
    "accuracy": {
        "verdict": "fail",
        "record": {"metric": "cosine", "mean": 0.97, "samples": 200, "budget_mean": 0.99},
        "not_compared": {},
    },
}


def session(tmp_path, outcome):
    python = tmp_path / ".venvs" / "builder" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    commands = []
    environment = EnvironmentSpec.model_validate(
        {"name": "dev", "account": "1" * 12, "region": "us-east-1", "platform": "triton-26.05"}
    )
    return SimpleNamespace(
        paths=Paths(code=tmp_path, tree=tmp_path, build=tmp_path / "build"),
        environment=environment,
        variables={"A": "b"},
        run=lambda command: (commands.append(command), outcome)[1],
        commands=commands,
    )


def test_builders_python_compares_and_its_last_line_is_the_report(tmp_path):
    of = session(tmp_path, Outcome(code=0, output=f"a note\n{json.dumps([REPORT])}\n"))
    assert compare(of, "search", ["--hours", "3"]) == [REPORT]
    (command,) = of.commands
    assert command.argv[1:3] == ("-m", "engine_build.captures")
    assert f"s3://roundhouse-dev-{'1' * 12}-us-east-1" in command.argv
    assert command.argv[-2:] == ("--hours", "3") and command.environment == {"A": "b"}


def test_report_says_what_was_found_and_what_was_not_read():
    text = format_report(REPORT)
    assert "fail, mean cosine 0.97000 of 200 rows, budget 0.99" in text
    assert "tokens of a text: index 0.400, chance alone 0.100, drifted" in text
    assert "2 not read: it is no JSON" in text
    assert faults(REPORT) == [
        "AllTraffic answers below the accuracy budget",
        "tokens of a text of AllTraffic has drifted",
    ]


def test_too_few_rows_are_no_fault_and_never_fine():
    few = {
        **REPORT,
        "inputs": {"enough_data": False, "distances": [DISTANCE]},
        "accuracy": {"verdict": "not enough data", "record": None, "not_compared": {}},
    }
    assert faults(few) == []
    assert format_report(few).count("not enough data") == 2


def test_refuses_with_the_reason_of_the_program(tmp_path):
    of = session(tmp_path, Outcome(code=1, output="note\nFAILED: it captures nothing.\n"))
    with pytest.raises(RoundhouseError, match=r"^it captures nothing\.$"):
        compare(of, "search", [])


def test_refuses_without_the_builders_environment(tmp_path):
    of = session(tmp_path, Outcome(code=0, output=""))
    of.paths.venv_python("builder").unlink()
    with pytest.raises(NotReadyError, match="make setup"):
        compare(of, "search", [])
