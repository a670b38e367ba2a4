"""From the program's answers to the report, and the proposal in the model file."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from rich.console import Console

from onboarding.manifest import BenchmarkRecord, ProfileRecord
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError
from roundhouse.lengths.analysis import analyse_lengths, write_profiles, write_report
from roundhouse.lengths.measurement import parse_counts, sizes_to_time, spread
from roundhouse.lengths.options import LengthsOptions, PadAs, TimedBy
from roundhouse.lengths.padding import padding
from roundhouse.lengths.report import document, markdown, note_lines
from roundhouse.paths import Paths
from roundhouse.processes import Outcome
from roundhouse.report import Report
from tests.unit.roundhouse.engines import copied_tree, entry_for, with_entry

pytestmark = pytest.mark.unit
PROFILES = (ProfileRecord(batch=(1, 8, 32), sequence=(8, 64, 128)),)
BODY = base64.b64encode(b'{"inputs": ["a"]}').decode()
COUNTS = {
    "requests": 1000,
    "texts": 1000,
    "tokens": 36_900,
    "lost_tokens": 900,
    "truncated_requests": 3,
    "truncated_texts": 3,
    "refused": {"a reason": 2},
    "skipped": {"it is no JSON": 4},
    "percentiles": {"min": 36, "max": 428, "mean": 36.9},
    "parts": [[1, 36, 997, 35_892], [1, 128, 3, 384]],
    "words": [7, 8],
    "sample": [{"lengths": [36], "body": BODY, "content_type": "application/json"}] * 4,
}
MODEL = "sentence-embedder-fp32"


def record(batch, sequence, p50_ms):
    times = dict.fromkeys(("average_ms", "p50_ms", "p95_ms", "p99_ms"), p50_ms)
    return BenchmarkRecord(
        runtime="tensorrt", precision="fp16", batch=batch, sequence=sequence,
        rows_per_second=1.0, repetitions=9, **times,
    )  # fmt: skip


class Runtime:
    """Answers every request, and notes it."""

    def __init__(self, status="InService"):
        self.status, self.calls = status, []

    def describe_endpoint(self, *, EndpointName):
        if self.status is None:
            raise AwsError("SageMaker: could not find endpoint.", reason="ValidationException")
        return {"EndpointStatus": self.status}

    def invoke_endpoint(self, **call):
        self.calls.append(call)
        return {"Body": io.BytesIO(b"{}")}


class Program:
    """Plays `python -m engine_build.lengths`: a token takes a tenth of a millisecond.

    `replayed`: milliseconds of a run in a replay, where they are others than of its size alone.
    """

    def __init__(self, counts=COUNTS, replayed=lambda rows, tokens: rows * tokens / 10):
        self.counts, self.replayed, self.commands = counts, replayed, []

    def __call__(self, command, on_line=None):
        self.commands.append(command.argv)
        action, arguments = command.argv[3], command.argv
        if action == "count":
            return Outcome(code=0, output=f"a note\n{json.dumps(self.counts)}\n")
        plan = json.loads(Path(arguments[arguments.index("--plan") + 1]).read_text("utf-8"))
        shapes = [
            {"rows": rows, "tokens": tokens, "ms": rows * tokens / 10, "runs": 5}
            for rows, tokens in plan["shapes"]
        ]
        replays = {
            name: [[sum(self.replayed(rows, n) for _, rows, n in runs)] * 3 for runs in requests]
            for name, requests in plan["replays"].items()
        }
        return Outcome(code=0, output=json.dumps({"shapes": shapes, "replays": replays}))


def build(deployment, target, **fields):
    return with_entry(target, entry_for(deployment, target, **fields))


def session(tmp_path, environment, run, runtime=None, **manifest):
    """A session whose engines are all built as `manifest` says."""
    root = copied_tree(tmp_path / "tree")
    python = tmp_path / ".venvs" / "builder" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    fields = {"optimization_profiles": PROFILES, "tokenizer_file": "t/1/tokenizer.json"} | manifest
    found = tuple(
        item.with_targets(partial(build, item, **fields))
        for item in deployments(read_tree(root), environment)
    )
    work = tmp_path / "build" / "lengths" / environment / MODEL / "work"
    work.mkdir(parents=True)
    return SimpleNamespace(
        paths=Paths(code=tmp_path, tree=root, build=tmp_path / "build"),
        environment=read_tree(root).environments[environment],
        variables={},
        run=run,
        report=Report(console=Console(file=io.StringIO(), width=200)),
        clients=lambda service: Runtime() if runtime is None else runtime,
        deployments=lambda: found,
    )


def options(tmp_path, **changes):
    base = LengthsOptions(
        requests=tmp_path / "requests.jsonl",
        most_profiles=4,
        timed_by=TimedBy.auto,
        pad_as=None,
        seconds=2.0,
        write_command="roundhouse lengths … --write",
    )
    return dataclasses.replace(base, **changes)


def test_engines_for_cpus_run_here_and_are_replayed_as_they_pad(tmp_path):
    program = Program()
    found = analyse_lengths(session(tmp_path, "local", program), MODEL, options(tmp_path))
    assert [argv[3] for argv in program.commands] == ["count", "time", "time"]
    assert found.padding.pad_as is PadAs.longest and found.timed.by is TimedBy.engine
    assert found.proposal is None and set(found.replays) == {"it is"}
    (replayed,) = document(found)["replays"].values()
    assert replayed["predicted_ms"] == pytest.approx(replayed["ms"])
    assert found.measured is None and replayed["rounds"] == 3
    text = "\n".join(note_lines(found))
    assert "0.30% of the requests are truncated (3 requests, 3 texts): 900 tokens, 2.44%" in text
    assert "2 requests are refused: a reason." in text
    assert "4 captures were skipped: it is no JSON." in text
    assert "No other optimization profiles would save a hundredth" in text


def test_proposal_is_replayed_and_its_saving_predicted(tmp_path):
    of = session(tmp_path, "local", Program())
    found = analyse_lengths(of, MODEL, options(tmp_path, pad_as=PadAs.triton))
    assert set(found.replays) == {"it is", "proposed"}
    # 64 tokens of padding's bucket against 40 of the proposed one.
    assert found.saving == pytest.approx(1 - (997 * 40 + 3 * 128) / (997 * 64 + 3 * 128))
    # All four replayed requests are of 36 tokens.
    assert found.measured.share == found.saving_of_replayed == pytest.approx(1 - 40 / 64)
    data = document(found)
    buckets = data["present"]["buckets"]
    assert [bucket["tokens"] for bucket in buckets] == [64, 128]
    assert buckets[0]["padding"] == pytest.approx(1 - 36 / 64)
    assert buckets[0]["padding_ms"] == pytest.approx(997 * (64 - 36) / 10)
    assert data["present"]["all"]["useful"] == 36_276
    json.dumps(data)
    text = markdown(found)
    assert "sequence: [8, 40, 40]" in text and "roundhouse lengths … --write" in text


def test_saving_is_what_replayed_requests_saved_and_not_what_sizes_add_up_to(tmp_path):
    """An engine that in a row of requests takes 20 ms for each run, beside its tokens."""
    program = Program(replayed=lambda rows, tokens: 20 + rows * tokens / 10)
    of = session(tmp_path, "local", program)
    found = analyse_lengths(of, MODEL, options(tmp_path, pad_as=PadAs.triton))
    truth = 1 - (20 + 4.0) / (20 + 6.4)
    assert found.saving > 0.35 and found.measured.share == pytest.approx(truth)
    text = "\n".join(note_lines(found))
    assert f"2 profiles would save {truth:.1%} of the engine's time (95 % interval" in text
    assert "measured on 4 requests in 3 rounds" in text
    data = document(found)
    assert data["measured_saving"]["low"] == pytest.approx(truth)
    assert data["predicted_saving"] == found.saving


def test_saving_that_is_not_measured_is_not_claimed(tmp_path):
    """Any padding takes as long: what the sizes promise does not come."""
    of = session(tmp_path, "local", Program(replayed=lambda rows, tokens: 5.0))
    found = analyse_lengths(of, MODEL, options(tmp_path, pad_as=PadAs.triton))
    text = "\n".join(note_lines(found))
    assert "No saving is shown: 2 profiles saved 0.0% of the engine's time" in text


def test_engines_for_gpus_are_timed_at_their_endpoint(tmp_path):
    runtime = Runtime()
    of = session(tmp_path, "dev", Program(), runtime)
    found = analyse_lengths(of, MODEL, options(tmp_path))
    assert found.timed.by is TimedBy.endpoint and found.padding.pad_as is PadAs.triton
    assert len(runtime.calls) == 5, "the first request is sent once more, and not counted"
    assert runtime.calls[0]["Body"] == b'{"inputs": ["a"]}'
    assert runtime.calls[0]["TargetModel"].endswith(".tar.gz")
    assert set(found.timed.table.measured) == {(1, 64)} and not found.replays
    assert "not this machine" in found.timing_notes[0]


@pytest.mark.parametrize(
    ("status", "reason"), [(None, "could not find endpoint"), ("Updating", "is Updating")]
)
def test_times_are_the_locks_where_no_endpoint_answers(tmp_path, status, reason):
    benchmark = (record(1, 8, 1.0), record(1, 128, 9.0))
    fields = {"benchmark": benchmark, "precision": "fp16"}
    of = session(tmp_path, "dev", Program(), Runtime(status), **fields)
    found = analyse_lengths(of, MODEL, options(tmp_path))
    assert found.timed.by is TimedBy.lock
    text = "\n".join(note_lines(found))
    assert reason in text and "the lock: 2 sizes that the build measured on a test" in text


def test_refuses_a_lock_without_a_benchmark(tmp_path):
    of = session(tmp_path, "dev", Program(), Runtime(None))
    with pytest.raises(RoundhouseError, match="has no benchmark of a sequence"):
        analyse_lengths(of, MODEL, options(tmp_path))


def test_refuses_models_that_take_no_texts(tmp_path):
    of = session(tmp_path, "local", Program(), tokenizer_file=None)
    with pytest.raises(RoundhouseError, match="takes no texts"):
        analyse_lengths(of, MODEL, options(tmp_path))


def test_refuses_an_unknown_model(tmp_path):
    with pytest.raises(RoundhouseError, match="'nope': no such model in environment local"):
        analyse_lengths(session(tmp_path, "local", Program()), "nope", options(tmp_path))


def test_refuses_with_every_faulty_line(tmp_path):
    of = session(tmp_path, "local", lambda *_: Outcome(code=1, output="x\nFAILED: a\nb:2: c\n"))
    with pytest.raises(RoundhouseError, match=r"^a\nb:2: c$"):
        analyse_lengths(of, MODEL, options(tmp_path))


def test_refuses_without_the_builders_environment(tmp_path):
    of = session(tmp_path, "local", Program())
    of.paths.venv_python("builder").unlink()
    with pytest.raises(NotReadyError, match="make setup"):
        analyse_lengths(of, MODEL, options(tmp_path))


def test_every_request_may_be_refused(tmp_path):
    program = Program({**COUNTS, "parts": [], "sample": [], "truncated_requests": 0})
    benchmark = (record(1, 8, 1.0),)
    fields = {"benchmark": benchmark, "precision": "fp16"}
    found = analyse_lengths(session(tmp_path, "dev", program, **fields), MODEL, options(tmp_path))
    assert not found.costs and document(found)["present"]["all"] is None
    assert "No request is truncated." in note_lines(found)


def test_price_that_is_not_known_stays_unknown(tmp_path):
    found = analyse_lengths(session(tmp_path, "local", Program()), MODEL, options(tmp_path))
    found = dataclasses.replace(found, usd_an_hour=None)
    assert document(found)["present"]["all"]["padding_usd"] is None
    assert "is not known, so padding's cost is not" in "\n".join(note_lines(found))
    assert "unknown" in markdown(found)


def test_proposal_is_written_into_the_model_file(tmp_path):
    of = session(tmp_path, "local", Program())
    found = analyse_lengths(of, MODEL, options(tmp_path, pad_as=PadAs.triton))
    folder = tmp_path / "report"
    write_report(found, folder)
    assert "another engine: build it" in write_profiles(of.paths, MODEL, folder)
    written = yaml.safe_load((of.paths.tree / "models" / f"{MODEL}.yaml").read_text())
    assert [item["sequence"] for item in written["engine"]["optimization_profiles"]] == [
        [8, 40, 40],
        [41, 128, 128],
    ]
    assert "nothing was changed" in write_profiles(of.paths, MODEL, folder)


def test_refuses_to_write_without_a_proposal(tmp_path):
    of = session(tmp_path, "local", Program())
    with pytest.raises(RoundhouseError, match="has no report; run the command with --requests"):
        write_profiles(of.paths, MODEL, tmp_path / "report")
    write_report(analyse_lengths(of, MODEL, options(tmp_path)), tmp_path / "report")
    with pytest.raises(RoundhouseError, match="proposes no profiles"):
        write_profiles(of.paths, MODEL, tmp_path / "report")


def test_sizes_that_are_timed_are_few_and_hold_the_extremes():
    parts = parse_counts(
        {**COUNTS, "parts": [[rows, n, 1, rows * n] for rows in range(1, 33) for n in (3, 9, 128)]}
    ).parts
    sizes = sizes_to_time(parts, padding(PadAs.triton, PROFILES, 32))
    assert len(sizes) <= 48 and {(1, 128), (32, 128), (1, 3)} <= set(sizes)
    assert spread(range(10), 3) == [0, 4, 9] and spread([1, 2], 3) == [1, 2]
