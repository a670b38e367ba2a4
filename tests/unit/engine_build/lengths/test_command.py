"""`python -m engine_build.lengths` on a built engine: counted, timed, replayed."""

from __future__ import annotations

import io
import json

import pytest

from engine_build.lengths.__main__ import main
from engine_build.store import sha256_of
from tests.unit.engine_build.tiny import sample_texts

pytestmark = pytest.mark.unit


def run(*arguments):
    stdout, stderr = io.StringIO(), io.StringIO()
    code = main(list(map(str, arguments)), stdout, stderr)
    return code, stdout.getvalue(), stderr.getvalue()


@pytest.fixture
def engine(tiny_build, tmp_path):
    key = tiny_build.result.entry.manifest.engine_key
    where = ("--store", tiny_build.store, "--region", "us-east-1", "--engine-key", key)
    return (*where, "--sha256", tiny_build.result.entry.archive.sha256, "--out", tmp_path / "out")


@pytest.fixture
def requests(tmp_path):
    """Thirty requests of two texts each, and one that is cut at 16 tokens."""
    texts = sample_texts(60, seed=21)
    pairs = [texts[at : at + 2] for at in range(0, 60, 2)]
    lines = [{"inputs": pair} for pair in pairs] + [{"inputs": ["a cat " * 20]}]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lengths_are_replayed_through_the_built_engine(engine, requests, tmp_path):
    code, stdout, stderr = run("count", *engine, "--requests", requests)
    assert code == 0, stderr
    found = json.loads(stdout)
    assert (found["requests"], found["texts"], found["truncated_requests"]) == (31, 61, 1)
    assert found["lost_tokens"] == 42 - 16 and found["percentiles"]["max"] == 42
    assert sum(count for _, _, count, _ in found["parts"]) == 31
    assert sum(useful for *_, useful in found["parts"]) == found["tokens"] - found["lost_tokens"]
    assert len(found["sample"]) == 31 and found["sample"][0]["body"]

    longest = [[(item["lengths"], len(item["lengths"]), 16)] for item in found["sample"]]
    exact = [[(lengths, rows, max(lengths))] for ((lengths, rows, _),) in longest]
    plan = tmp_path / "plan.json"
    shapes = [[1, 4], [2, 16], [4, 16]]
    replays = {"exact": exact, "longest": longest}
    plan.write_text(json.dumps({"shapes": shapes, "replays": replays, "words": found["words"]}))
    timing = ("time", "--out", tmp_path / "out", "--plan", plan, "--seconds", "0.2")
    code, stdout, stderr = run(*timing)
    assert code == 0, stderr
    timed = json.loads(stdout)
    assert [[item["rows"], item["tokens"]] for item in timed["shapes"]] == shapes
    assert all(item["ms"] > 0 and item["runs"] >= 3 for item in timed["shapes"])
    assert set(timed["replays"]) == {"exact", "longest"}
    for requests_ms in timed["replays"].values():
        assert len(requests_ms) == 31, "of each request, in each round"
        assert {len(rounds) for rounds in requests_ms} == {len(requests_ms[0])}
        assert len(requests_ms[0]) >= 3 and min(map(min, requests_ms)) > 0


def test_refuses_an_archive_that_is_not_the_locks(engine, requests):
    place = engine.index("--sha256") + 1
    other = (*engine[:place], "0" * 64, *engine[place + 1 :])
    code, _, stderr = run("count", *other, "--requests", requests)
    assert code == 1 and "is not the archive that the lock names" in stderr


def test_refuses_an_engine_that_is_not_published(engine, requests):
    place = engine.index("--engine-key") + 1
    other = (*engine[:place], "0" * 20, *engine[place + 1 :])
    code, _, stderr = run("count", *other, "--requests", requests)
    assert code == 1 and "is not there; `roundhouse build`" in stderr


def test_refuses_a_file_without_requests(engine, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    code, _, stderr = run("count", *engine, "--requests", path)
    assert code == 1 and "has no requests" in stderr


def test_refuses_faulty_lines(engine, tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"inputs": ["a"]}\n{"inputs": 3}\n')
    code, _, stderr = run("count", *engine, "--requests", path)
    assert code == 1 and f"FAILED: 1 of its lines are no requests:\n{path}:2: " in stderr


def test_archive_is_unpacked_once_more_for_each_count(engine, requests, tmp_path):
    for _ in range(2):
        assert run("count", *engine, "--requests", requests)[0] == 0
    assert not list((tmp_path / "out").glob("*.tar.gz"))
    network = next((tmp_path / "out" / "engine").rglob("*.onnx"))
    assert sha256_of(network)
