"""`roundhouse bench` on engines and text generators, from its first request to its report."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from roundhouse import interruption
from roundhouse.cli import app as cli
from roundhouse.errors import RoundhouseError
from roundhouse.measure import generation, runner
from roundhouse.measure.destination import Destination
from roundhouse.measure.measurement import Outcome, Verdict
from roundhouse.measure.runner import EngineRunner
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree
from tests.unit.roundhouse.measure.answering import Answer, serve
from tests.unit.roundhouse.measure.phases import load_test
from tests.unit.roundhouse.measure.streams import answer, chat_chunk, stream, usage, whole

SHORT = ("--rate", "50", "--seconds", "1")
TEXT = ("--model", "m", "--input", "60:3", "--users", "2", "--seconds", "1")
LOOSE = ("--slo", "10000:10000")
BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command in a folder of its own; exit code, and each stream's text on one line."""
    (tmp_path / "cdk.json").touch()
    (tmp_path / "environments").mkdir()
    (tmp_path / "a.txt").write_text("a cat\na kitten\n")
    monkeypatch.chdir(tmp_path)

    def command(url, *words):
        monkeypatch.setattr(sys, "argv", ["roundhouse", "bench", "--url", url, *map(str, words)])
        code = cli.exit_code()
        return code, *(" ".join(text.split()) for text in capsys.readouterr())

    def with_input(url, *words):
        return command(url, "--input", "a.txt", *words)

    command.of_engine = with_input
    return command


def chat_url(server, path="/v1/chat/completions") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def counting(number) -> Answer:
    """Two prompts are counted first; then each answer has three tokens."""
    return answer(whole(prompt={1: 42, 2: 554}.get(number, 60)))


def bodies(server) -> list[dict]:
    return [json.loads(body) for _, body in server.requests if body]


def test_a_load_leaves_a_report_beside_earlier_ones(run, tmp_path):
    (tmp_path / "build").write_text("a file, not a folder")
    code, _, error = run.of_engine("http://127.0.0.1:9", *SHORT)
    assert code == 1 and "make it a folder that can be written" in error
    (tmp_path / "build").unlink()
    with serve() as server:
        for _ in range(2):
            code, out, _ = run.of_engine(server.url, *SHORT, "--format", "json")
            assert code == 0
    document = json.loads(out)
    assert document["phases"][0]["answered"] > 10
    assert document["settings"]["command"].startswith("roundhouse bench --url http://127.0.0.1")
    suffixes = sorted(path.suffix for path in (tmp_path / "build" / "load").iterdir())
    assert suffixes == [".json", ".json"]
    written = json.loads(Path(document["file"]).read_text())
    assert written["headline"] == document["headline"]


@pytest.mark.parametrize(("slo", "expected"), [("10000", 0), ("0.001", 6)])
def test_a_load_that_misses_the_slo_ends_with_exit_code_6(run, slo, expected):
    with serve() as server:
        code, out, _ = run.of_engine(server.url, *SHORT, "--slo", slo)
    assert code == expected
    assert ("50 requests/s missed the SLO" in out) == (expected == 6)


def test_ctrl_c_keeps_the_measurements(run):
    def interrupt(number):
        if number == 200:
            os.kill(os.getpid(), signal.SIGINT)
        return Answer()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    interruption.install()
    try:
        with serve(interrupt) as server:
            load = ("--rate", "50", "--seconds", "60", "--format", "json")
            code, out, _ = run.of_engine(server.url, *load)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    document = json.loads(out)
    assert code == 130 and document["broken_off"] and "Broken off" in document["headline"]
    assert document["phases"][0]["answered"] > 0


@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        (
            Answer(status=404, body=b'{"error": "no such path"}'),
            1,
            "refused the first request with HTTP 404: no such path",
        ),
        (Answer(status=503, body=b""), 5, "is the server ready"),
        (Answer(body=b"hello"), 6, "The answer cannot be read"),
    ],
)
def test_refuses_a_server_that_does_not_take_the_first_request(run, reply, code, message):
    with serve(lambda number: reply) as server:
        exit_code, _, error = run.of_engine(server.url, "--rate", "5")
    assert (exit_code, len(server.requests)) == (code, 1)
    assert message in error


def test_refuses_a_server_that_is_not_there(run):
    with serve() as server:
        url = server.url
    for found in (run.of_engine(url, "--rate", "5"), run(chat_url(server), *TEXT)):
        code, _, error = found
        assert code == 5 and "does not answer" in error and "Traceback" not in error


def test_refuses_a_load_that_nothing_answered(run):
    gone = Answer(status=500, body=b'{"error": "gone"}')
    with serve(lambda number: Answer() if number == 1 else gone) as server:
        code, _, error = run.of_engine(server.url, *SHORT)
    assert code == 6
    assert "of the warm-up failed (HTTP 500: gone)" in error


def test_refuses_an_endpoint_that_is_not_deployed(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    body = b'{"Message": "Endpoint prod-x of account 000000000000 not found."}'
    message = "not found; `roundhouse status` shows what is deployed"
    with serve(lambda number: Answer(status=400, body=body)) as server:
        destination = Destination(url=server.url, region="eu-west-1")
        with pytest.raises(RoundhouseError, match=message):
            asyncio.run(
                EngineRunner(test=load_test(subject="prod-x", destination=destination)).run()
            )
    assert server.requests[0][0]["authorization"].startswith("AWS4-HMAC-SHA256")


def test_a_load_of_text_leaves_a_report_with_its_metrics(run):
    with serve(counting) as server:
        code, out, _ = run(chat_url(server), *TEXT, *LOOSE, "--format", "json")
    assert code == 0
    document = json.loads(out)
    (phase,) = document["phases"]
    answers = phase["answered"]
    assert answers > 4 and phase["output_tokens"] == 3 * answers
    assert phase["good_answers"] == answers
    assert document["workload"]["tokens_of_a_word"] == {"fixed": 10, "each": 1}
    sent = bodies(server)
    assert sent[-1]["model"] == "m" and len(sent[-1]["messages"][0]["content"].split()) == 50
    assert json.loads(Path(document["file"]).read_text())["headline"] == document["headline"]


def test_a_model_file_gives_lengths_and_slo(run, tmp_path):
    root = generator_tree(tmp_path / "tree", BASE)
    load = ("--users", "2", "--seconds", "1", "--root", root)
    with serve(counting) as server:
        code, out, _ = run(chat_url(server, ""), "--model", "chat", *load)
    assert code in (0, 6) and "goodput" in out and "2 at once" in out
    assert {request["model"] for request in bodies(server)} == {"chat"}


@pytest.mark.parametrize("is_short", [False, True])
def test_the_search_finds_the_most_requests_at_once(run, monkeypatch, is_short):
    """A step that was too short for its percentile is repeated."""

    def verdict(measurement, slo):
        outcome = Outcome.held if measurement.phase.start <= 2 else Outcome.missed
        if is_short and measurement.phase.seconds < 0.3:
            outcome = Outcome.unproven
        return Verdict(outcome=outcome, reason="by the test")

    def step_seconds(self, count):
        return 0.2 + 0.2 * (len(self.phases) % 2) if is_short else 0.2

    monkeypatch.setattr(runner, "verdict", verdict)
    monkeypatch.setattr(generation.GenerationRunner, "_step_seconds", step_seconds)
    words = ("--model", "m", "--input", "60:3", "--slo", "5000:5000", "--format", "json")
    with serve(counting) as server:
        code, out, _ = run(chat_url(server), *words)
    document = json.loads(out)
    highest = document["highest"]
    assert (highest["load"], highest["lowest_missed"], highest["exact"]) == (2, 3, True)
    phase = document["phases"][highest["phase"]]
    assert code == 0 and phase["goodput_requests_per_second"] > 0
    if is_short:
        steps = [(phase["outcome"], phase["load"]) for phase in document["phases"]]
        assert {outcome for outcome, _ in steps[::2]} == {"too few samples"} and len(steps) > 4
        assert [count for _, count in steps[::2]] == [count for _, count in steps[1::2]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (answer(stream(chat_chunk(), usage())), "The stream ended without [DONE]"),
        (
            Answer(status=404, body=b'{"error": {"message": "no such model"}}'),
            "refused the first request with HTTP 404: no such model",
        ),
    ],
)
def test_what_fails_every_request_ends_the_command_before_the_load(run, data, reason):
    with serve(lambda number: data) as server:
        code, _, error = run(chat_url(server), *TEXT)
    assert code != 0 and reason in error


def test_a_broken_stream_is_an_error_and_no_answer(run):
    def answers(number):
        return counting(number) if number % 2 else answer(stream(chat_chunk(), usage()))

    with serve(lambda number: counting(number) if number < 3 else answers(number)) as server:
        code, out, _ = run(chat_url(server), *TEXT, *LOOSE, "--format", "json")
    (phase,) = json.loads(out)["phases"]
    ((reason, count),) = phase["errors"].items()
    assert reason == "The stream ended without [DONE], so its answer is not whole."
    assert code == 6 and abs(count - phase["answered"]) <= 2


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--rows", "3"), 2, "--rows: belongs to engines"),
        (("--input", "500:500"), 2, "needs an SLO; give --slo TTFT:ITL in milliseconds"),
        (("--rate", "1"), 2, "has no lengths"),
        (("--rate", "1", "--slo", "5"), 1, "--slo 5: give the p95 to the first token and between"),
        (("--input", "mine.jsonl", "--rate", "1"), 1, "give PROMPT:OUTPUT tokens"),
        (("--record",), 2, "--record: needs an ENDPOINT"),
    ],
)
def test_refuses_options_that_a_text_generator_has_not(run, words, code, reason):
    with serve(counting) as server:
        found, _, error = run(chat_url(server), "--model", "m", *words)
    assert found == code and reason in error
