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
from tests.unit.roundhouse.load_test.answering import Answer, serve


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs the command line on a server's URL; exit code, standard output and error."""
    (tmp_path / "a.txt").write_text("a cat\na kitten\n")

    def command(url, *words):
        fixed = [
            "roundhouse",
            "bench",
            "--url",
            url,
            "--input",
            str(tmp_path / "a.txt"),
            "--output",
            str(tmp_path / "out"),
        ]
        monkeypatch.setattr(sys, "argv", [*fixed, *words])
        code = cli.exit_code()
        return code, *capsys.readouterr()

    return command


def test_a_load_leaves_a_report(run, tmp_path):
    with serve() as server:
        code, out, _ = run(
            server.url, "--rate", "50", "--seconds", "1", "--warm-up", "0", "--format", "json"
        )
    document = json.loads(out)
    assert code == 0
    assert document["phases"][0]["answered"] > 10
    assert document["settings"]["command"].startswith("roundhouse bench --url http://127.0.0.1")
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".html", ".json"]
    assert (
        json.loads(Path(document["files"]["json"]).read_text())["headline"] == document["headline"]
    )


@pytest.mark.parametrize(("slo", "expected"), [("10000", 0), ("0.001", 6)])
def test_a_load_that_misses_the_slo_ends_with_exit_code_6(run, slo, expected):
    with serve() as server:
        load = ("--rate", "50", "--seconds", "1", "--warm-up", "0", "--slo", slo)
        code, out, _ = run(server.url, *load)
    assert code == expected
    assert ("phase 1 missed the SLO" in " ".join(out.split())) == (expected == 6)


def test_refuses_several_load_processes_with_the_way_out(run):
    code, _, error = run("http://127.0.0.1:9", "--workers", "4")
    assert code == 1
    assert "load from several machines, each with a part of the --rate" in " ".join(error.split())


def test_reports_keep_out_of_each_others_way(run, tmp_path):
    with serve() as server:
        for _ in range(2):
            assert run(server.url, "--rate", "20", "--seconds", "1", "--warm-up", "0")[0] == 0
    assert len(list((tmp_path / "out").glob("*.html"))) == 2


def test_ctrl_c_keeps_what_was_measured(run):
    def answer(number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return Answer()

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    interruption.install()
    try:
        with serve(answer) as server:
            code, out, _ = run(
                server.url, "--rate", "50", "--seconds", "60", "--warm-up", "0", "--format", "json"
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    document = json.loads(out)
    assert code == 130
    assert document["broken_off"]
    assert "Broken off" in document["headline"]
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
        found, _, error = run(server.url, "--rate", "5")
    assert (found, len(server.requests)) == (code, 1)
    assert message in " ".join(error.split())


def test_refuses_a_server_that_is_not_there(run):
    with serve() as server:
        url = server.url
    code, _, error = run(url, "--rate", "5")
    assert code == 5
    assert "does not answer" in error and "Traceback" not in error


def test_refuses_a_load_that_nothing_answered(run):
    with serve(
        lambda number: Answer() if number == 1 else Answer(status=500, body=b'{"error": "gone"}')
    ) as server:
        code, _, error = run(server.url, "--rate", "20", "--seconds", "1", "--warm-up", "0")
    assert code == 6
    assert "no request was answered (HTTP 500: gone)" in " ".join(error.split())


def test_refuses_an_endpoint_that_is_not_deployed(monkeypatch):
    from roundhouse.errors import RoundhouseError
    from roundhouse.load_test.destination import Destination
    from roundhouse.load_test.subject import require_answer
    from tests.unit.roundhouse.load_test.phases import load_test

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    body = b'{"Message": "Endpoint prod-x of account 000000000000 not found."}'
    with (
        serve(lambda number: Answer(status=400, body=body)) as server,
        pytest.raises(RoundhouseError) as raised,
    ):
        destination = Destination(url=server.url, region="eu-west-1")
        asyncio.run(require_answer(load_test(subject="prod-x", destination=destination)))
    assert "not found; `roundhouse status` shows what is deployed" in str(raised.value)
    assert server.requests[0][0]["authorization"].startswith("AWS4-HMAC-SHA256")
