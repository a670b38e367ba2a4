"""`roundhouse bench` on a text generator, from its first request to its report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer

from roundhouse.cli import app as cli
from roundhouse.cli.bench import bench
from roundhouse.load_test.generation import load_test as module
from roundhouse.load_test.measurement import Outcome, Verdict
from roundhouse.load_test.options import Arrivals
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.generation.streams import (
    answer,
    chat_chunk,
    stream,
    usage,
    whole,
)

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
QUICK = ("--warm-up", "0", "--requests", "20", "--concurrency", "2")


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command; exit code, standard output and error on one line each."""

    def command(*words, root=None):
        words = [*words, *(() if root is None else ("--root", str(root)))]
        fixed = ["roundhouse", "bench", "--output", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", [*fixed, *map(str, words)])
        code = cli.exit_code()
        return code, *(" ".join(text.split()) for text in capsys.readouterr())

    return command


def url_of(server, path="/v1/chat/completions") -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def counting(number) -> Answer:
    """Two prompts are counted first; then each answer has three tokens."""
    return answer(whole(prompt={1: 42, 2: 554}.get(number, 60)))


def bodies(server) -> list[dict]:
    return [json.loads(body) for _, body in server.requests if body]


def test_a_load_leaves_a_report_with_aiperfs_metrics(run, tmp_path):
    with serve(counting) as server:
        code, out, _ = run(
            *("--url", url_of(server), "--model", "m", "--lengths", "60:3", *QUICK),
            *("--ttft", "10000", "--itl", "10000", "--format", "json"),
        )
    assert code == 0
    document = json.loads(out)
    (phase,) = document["phases"]
    assert phase["metrics"]["request_count"] == {"unit": "requests", "avg": 20}
    assert phase["metrics"]["output_sequence_length"]["sum"] == 60
    assert phase["metrics"]["good_request_count"]["avg"] == 20
    assert document["workload"]["tokens_of_a_word"] == {"fixed": 10, "each": 1}
    sent = bodies(server)
    assert len(sent) == 22 and sent[-1]["model"] == "m"
    assert len(sent[-1]["messages"][0]["content"].split()) == 50
    page = Path(document["files"]["html"]).read_text()
    assert "Load test of a text generator" in page


def test_options_are_the_functions_own_and_not_what_click_made_of_the_words(tmp_path):
    """Some versions of Typer keep strings in Click's context where options are paths."""
    with serve(counting) as server, pytest.raises(typer.Exit) as end:
        bench(
            url=url_of(server),
            model="m",
            lengths="60:3",
            concurrency="2",
            requests=4,
            warm_up=0,
            arrivals=Arrivals.even,
            output=tmp_path / "new" / "folder",
        )
    assert end.value.exit_code == 0
    assert {path.suffix for path in (tmp_path / "new/folder").iterdir()} == {".html", ".json"}


def test_a_model_file_gives_lengths_and_slo(run, tmp_path):
    root = generator_tree(tmp_path / "tree", BASE)
    with serve(counting) as server:
        code, out, _ = run("--url", url_of(server, ""), "--model", "chat", *QUICK, root=root)
    assert code == 0 and "goodput" in out and "2 at once" in out
    assert {request["model"] for request in bodies(server)} == {"chat"}


def test_the_search_finds_the_most_requests_at_once(run, monkeypatch):
    def verdict(measurement, slo):
        outcome = Outcome.held if measurement.phase.start <= 2 else Outcome.missed
        return Verdict(outcome=outcome, reason="by the test")

    monkeypatch.setattr(module, "generation_verdict", verdict)
    monkeypatch.setattr(module, "LONGEST_STEP_SECONDS", 1.0)
    with serve(counting) as server:
        code, out, _ = run(
            *("--url", url_of(server), "--model", "m", "--lengths", "60:3", "--warm-up", "0"),
            *("--ttft", "5000", "--itl", "5000", "--format", "json"),
        )
    assert code == 0
    knee = json.loads(out)["knee"]
    assert (knee["concurrency"], knee["lowest_missed"], knee["exact"]) == (2, 3, True)
    assert knee["goodput_requests_per_second"] > 0


def test_a_step_that_was_too_short_is_repeated(run, monkeypatch):
    def verdict(measurement, slo):
        outcome = Outcome.held if measurement.phase.start <= 2 else Outcome.missed
        is_short = measurement.phase.seconds < 2
        return Verdict(outcome=Outcome.unproven if is_short else outcome, reason="by the test")

    def step_seconds(self, count):
        return 1.0 + len(self.phases) % 2

    monkeypatch.setattr(module, "generation_verdict", verdict)
    monkeypatch.setattr(module.GenerationRunner, "_step_seconds", step_seconds)
    with serve(counting) as server:
        code, out, _ = run(
            *("--url", url_of(server), "--model", "m", "--lengths", "60:3", "--warm-up", "0"),
            *("--ttft", "5000", "--itl", "5000", "--format", "json"),
        )
    document = json.loads(out)
    assert code == 0 and document["knee"]["concurrency"] == 2
    steps = [(phase["outcome"], phase["requests_at_once"]) for phase in document["phases"]]
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
        code, _, error = run("--url", url_of(server), "--model", "m", "--lengths", "chat", *QUICK)
    assert code != 0 and reason in error


def test_a_broken_stream_is_an_error_and_no_answer(run):
    def answers(number):
        return counting(number) if number % 2 else answer(stream(chat_chunk(), usage()))

    with serve(lambda number: counting(number) if number < 3 else answers(number)) as server:
        code, out, _ = run(
            *("--url", url_of(server), "--model", "m", "--lengths", "60:3", *QUICK),
            *("--ttft", "10000", "--itl", "10000", "--format", "json"),
        )
    (phase,) = json.loads(out)["phases"]
    assert code == 6
    assert phase["errors"] == {"The stream ended without [DONE], so its answer is not whole.": 10}
    assert phase["metrics"]["request_count"]["avg"] == 10


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--users", "3"), "--users: belongs to engines"),
        (("--concurrency", "0"), "--concurrency 0: give whole numbers"),
        (("--rate", "1", "--concurrency", "2"), "a load is open or closed"),
        (("--lengths", "chat", "--input", "a"), "--input and --lengths"),
        (("--seconds", "3"), "--seconds and --requests: belong to"),
        ((), "needs an SLO"),
        (("--rate", "1"), "has no lengths"),
        (("--rate", "1", "--ttft", "5"), "an SLO has both"),
        (("--record",), "--record: takes an ENDPOINT"),
    ],
)
def test_refuses_options_that_do_not_fit(run, words, reason):
    with serve(counting) as server:
        code, _, error = run("--url", url_of(server), "--model", "m", *words)
    assert code == 2 and reason in error


def test_refuses_a_text_generators_options_of_an_engine(run):
    code, _, error = run("--url", "http://127.0.0.1:9/invocations", "--lengths", "chat")
    assert code == 1 and "--lengths: belongs to a text generator" in error
