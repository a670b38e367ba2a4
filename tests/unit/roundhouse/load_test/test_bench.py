"""`roundhouse bench` from its first request to its report."""

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
from roundhouse.load_test.destination import Destination
from roundhouse.load_test.subject import require_answer
from tests.unit.roundhouse.load_test.answering import Answer, serve
from tests.unit.roundhouse.load_test.phases import load_test

SHORT = ("--rate", "50", "--seconds", "1", "--warm-up", "0")


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command on a server's URL; exit code, standard output and error on one line each."""
    file, folder = tmp_path / "a.txt", tmp_path / "out"
    file.write_text("a cat\na kitten\n")

    def command(url, *words):
        fixed = ["roundhouse", "bench", "--url", url, "--input", f"{file}", "--output", f"{folder}"]
        monkeypatch.setattr(sys, "argv", [*fixed, *words])
        code = cli.exit_code()
        return code, *(" ".join(text.split()) for text in capsys.readouterr())

    return command


def test_a_load_leaves_a_report_beside_earlier_ones(run, tmp_path):
    with serve() as server:
        for _ in range(2):
            code, out, _ = run(server.url, *SHORT, "--format", "json")
            assert code == 0
    document = json.loads(out)
    assert document["phases"][0]["answered"] > 10
    assert document["settings"]["command"].startswith("roundhouse bench --url http://127.0.0.1")
    suffixes = sorted(path.suffix for path in (tmp_path / "out").iterdir())
    assert suffixes == [".html", ".html", ".json", ".json"]
    written = json.loads(Path(document["files"]["json"]).read_text())
    assert written["headline"] == document["headline"]


@pytest.mark.parametrize(("slo", "expected"), [("10000", 0), ("0.001", 6)])
def test_a_load_that_misses_the_slo_ends_with_exit_code_6(run, slo, expected):
    with serve() as server:
        code, out, _ = run(server.url, *SHORT, "--slo", slo)
    assert code == expected
    assert ("phase 1 missed the SLO" in out) == (expected == 6)


def test_refuses_several_load_processes_with_the_way_out(run):
    code, _, error = run("http://127.0.0.1:9", "--workers", "4")
    assert code == 1
    assert "load from several machines, each with a part of the --rate" in error


def test_refuses_a_report_where_nothing_can_be_written(run, tmp_path):
    (tmp_path / "out").write_text("a file, not a folder")
    code, _, error = run("http://127.0.0.1:9", *SHORT)
    assert code == 1 and "give a folder that can be written" in error


def test_ctrl_c_keeps_the_measurements(run):
    def answer(number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return Answer()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    interruption.install()
    try:
        with serve(answer) as server:
            load = ("--rate", "50", "--seconds", "60", "--warm-up", "0", "--format", "json")
            code, out, _ = run(server.url, *load)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    document = json.loads(out)
    assert code == 130 and document["broken_off"] and "Broken off" in document["headline"]
    assert document["phases"][0]["answered"] > 0


@pytest.mark.parametrize(
    ("answer", "code", "message"),
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
def test_refuses_a_server_that_does_not_take_the_first_request(run, answer, code, message):
    with serve(lambda number: answer) as server:
        exit_code, _, error = run(server.url, "--rate", "5")
    assert (exit_code, len(server.requests)) == (code, 1)
    assert message in error


def test_refuses_a_server_that_is_not_there(run):
    with serve() as server:
        url = server.url
    code, _, error = run(url, "--rate", "5")
    assert code == 5
    assert "does not answer" in error and "Traceback" not in error


def test_refuses_a_load_that_nothing_answered(run):
    gone = Answer(status=500, body=b'{"error": "gone"}')
    with serve(lambda number: Answer() if number == 1 else gone) as server:
        code, _, error = run(server.url, *SHORT)
    assert code == 6
    assert "no request was answered (HTTP 500: gone)" in error


def test_refuses_an_endpoint_that_is_not_deployed(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    body = b'{"Message": "Endpoint prod-x of account 000000000000 not found."}'
    message = "not found; `roundhouse status` shows what is deployed"
    with serve(lambda number: Answer(status=400, body=body)) as server:
        destination = Destination(url=server.url, region="eu-west-1")
        with pytest.raises(RoundhouseError, match=message):
            asyncio.run(require_answer(load_test(subject="prod-x", destination=destination)))
    assert server.requests[0][0]["authorization"].startswith("AWS4-HMAC-SHA256")
