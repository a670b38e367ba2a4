"""`roundhouse bench NAME --record`, from copies as SageMaker describes them to the lock."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.text_generation.checkpoint_lock import (
    read_generation_lock,
    write_checkpoint_entry,
)
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.measure.bench import LoadReport
from roundhouse.measure.options import LoadOptions, closed_phase
from roundhouse.measure.prompts import WordTokens
from roundhouse.measure.recording import record_load, search_fault
from roundhouse.measure.result import Circumstances, GenerationResult
from roundhouse.measure.served_engine import served_copies
from roundhouse.measure.slo import Step, stream_slo, verdict
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree
from tests.unit.roundhouse.measure.served import Described
from tests.unit.roundhouse.measure.test_stream_measurement import answers, measurement

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
HERE = Circumstances(machine="a machine", date="2026-01-02 03:04 UTC", python="3.11")
SLO = stream_slo(ttft_ms=300, itl_ms=60)
OPTIONS = LoadOptions(endpoint="chat", env="cloud", record=True)


def sagemaker_of(prefix, current=2, desired=2, status="InService"):
    """One endpoint with a component of copies, as SageMaker describes it."""
    source = {"S3Uri": f"s3://bucket/{prefix}"}
    return Described(
        describe_endpoint={"EndpointStatus": "InService", "EndpointConfigName": "c"},
        describe_endpoint_config={"ProductionVariants": [{"InstanceType": "ml.g6e.2xlarge"}]},
        describe_inference_component={
            "InferenceComponentStatus": status,
            "Specification": {"ModelName": f"m-{current}"},
            "RuntimeConfig": {"CurrentCopyCount": current, "DesiredCopyCount": desired},
        },
        describe_model={"PrimaryContainer": {"ModelDataSource": {"S3DataSource": source}}},
    )


@pytest.fixture
def subject(tmp_path):
    """A tree whose text generator has one checkpoint in its lock."""
    root = generator_tree(tmp_path, BASE)
    tree = read_tree(root)
    spec = tree.views["cloud"].generators["chat"].spec
    (key,) = checkpoint_keys(spec, root)
    entry = checkpoint_entry(key, "bf16", source=spec.source.huggingface)
    environment = tree.environments["cloud"]
    write_checkpoint_entry(root / environment.locks, "chat", entry)
    (deployment,) = generation_deployments(read_tree(root), "cloud")
    return SimpleNamespace(root=root, deployment=deployment, entry=entry, environment=environment)


def session(subject, sagemaker) -> Session:
    paths = Paths(code=subject.root, tree=subject.root, build=subject.root / "build")
    return Session(
        paths=paths,
        environment=subject.environment,
        variables={},
        clients=lambda service: sagemaker,
        run=None,
        report=Report(console=Console(file=io.StringIO())),
    )


def phase(count, **changes):
    result = measurement(*answers(220, **changes), slo=SLO)
    result.phase = closed_phase(f"{count} at once", count, 10.0)
    result.verdict = verdict(result, SLO)
    return result


def search(*phases, **changes) -> GenerationResult:
    steps = [Step(rate=item.phase.start, outcome=item.verdict.outcome) for item in phases]
    test = SimpleNamespace(slo=SLO, options=OPTIONS, phases=())
    return GenerationResult(
        test=test, phases=phases, steps=steps, circumstances=HERE, tokens=WordTokens(), **changes
    )


EXACT = (phase(8), phase(8), phase(9, ttft=0.5), phase(9, ttft=0.5))


def bench_of(result, later=None):
    def run(paths, report, options):
        return LoadReport(result=result, page=paths.build / "load" / "page.html")

    return run


def test_knee_of_one_copy_is_written_into_the_lock(subject):
    sagemaker = sagemaker_of(subject.entry.prefix)
    done = record_load(session(subject, sagemaker), OPTIONS, run=bench_of(search(*EXACT)))
    lock = read_generation_lock(subject.root / subject.environment.locks, "chat")
    (entry,) = lock.checkpoints.values()
    assert entry.knee == done.entry
    assert (done.entry.concurrency, done.entry.instance_type) == (4, "ml.g6e.2xlarge")
    assert (done.entry.ttft_p95_ms, done.entry.itl_p95_ms) == pytest.approx((100, 10))
    assert done.entry.plan_key == subject.deployment.plan_key
    assert (done.entry.endpoint, done.entry.date) == ("cloud-chat", "2026-01-02")
    assert "answers 4 requests at once" in done.summary


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "Updating"}, "it is Updating"),
        ({"current": 1}, "it has 1 copies and 2 are desired"),
        ({"current": 0, "desired": 0}, "it has 0 copies"),
        ({"prefix": "checkpoints/other/"}, "it serves checkpoints/other/, and the lock's"),
    ],
)
def test_refuses_copies_that_are_not_the_locks(subject, changes, reason):
    sagemaker = sagemaker_of(**{"prefix": subject.entry.prefix, **changes})
    with pytest.raises(RoundhouseError, match=reason):
        served_copies(lambda service: sagemaker, subject.deployment, subject.entry)


def test_refuses_an_endpoint_that_changed_during_the_load(subject):
    sagemaker = sagemaker_of(subject.entry.prefix)

    def run(paths, report, options):
        sagemaker.documents |= sagemaker_of(subject.entry.prefix, 3, 3).documents
        return bench_of(search(*EXACT))(paths, report, options)

    with pytest.raises(RoundhouseError, match="changed during the load test; nothing was recorded"):
        record_load(session(subject, sagemaker), OPTIONS, run=run)
    lock = read_generation_lock(subject.root / subject.environment.locks, "chat")
    assert [entry.knee for entry in lock.checkpoints.values()] == [None]


def test_what_was_proven_is_recorded_with_that_word_beside_it(subject):
    sagemaker = sagemaker_of(subject.entry.prefix)
    proven = search(phase(8), ended="the 180 s of the search were over")
    done = record_load(session(subject, sagemaker), OPTIONS, run=bench_of(proven))
    assert (done.entry.concurrency, done.entry.tool) == (4, "roundhouse bench, proven, 2 copies")
    assert "within the SLO (proven; more may hold): goodput" in done.summary
    assert "Proven: 8 requests at once" in proven.headline
    assert "More may hold: the 180 s of the search were over." in proven.headline


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (search(phase(8, ttft=0.5), phase(8, ttft=0.5)), "no number of requests at once"),
        (dataclasses.replace(search(*EXACT), broken_off=True), "broken off"),
    ],
)
def test_refuses_what_is_no_knee(subject, result, reason):
    assert reason in search_fault(result)
    sagemaker = sagemaker_of(subject.entry.prefix)
    with pytest.raises(RoundhouseError, match=reason):
        record_load(session(subject, sagemaker), OPTIONS, run=bench_of(result))


def test_refuses_a_generator_without_a_checkpoint(subject):
    (subject.root / subject.environment.locks / "chat.lock.yaml").unlink()
    with pytest.raises(RoundhouseError, match="has no checkpoint to serve"):
        record_load(session(subject, None), OPTIONS, run=None)
    with pytest.raises(RoundhouseError, match="'x': no such endpoint in this environment"):
        record_load(session(subject, None), dataclasses.replace(OPTIONS, endpoint="x"), run=None)
