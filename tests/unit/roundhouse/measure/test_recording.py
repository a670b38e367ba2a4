"""`roundhouse bench --record`, from an endpoint as SageMaker describes it to the lock."""

from __future__ import annotations

import dataclasses
import datetime
from types import SimpleNamespace

import pytest

from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.lock import read_lock, write_lock_entry
from onboarding.names import engine_archive_path
from onboarding.resolve import deployments
from onboarding.text_generation.checkpoint_lock import GenerationLock
from onboarding.tree import read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.measure.bench import LoadReport
from roundhouse.measure.options import LoadOptions
from roundhouse.measure.recording import record_load
from roundhouse.measure.served_engine import gpu_utilization_percent
from tests.synth.deployments import instance_capacity
from tests.unit.onboarding.text_generation.entries import checkpoint_entry
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree
from tests.unit.roundhouse.build_cloud import session_of
from tests.unit.roundhouse.engines import copied_tree
from tests.unit.roundhouse.measure.phases import (
    STREAM_PHASES,
    load_of,
    measurement,
    searched,
    second,
    stream_phase,
    stream_search,
)
from tests.unit.roundhouse.measure.served import (
    Described,
    instances,
    object_of,
    served_endpoint,
)

SHARED = {"endpoint": "text-shared", "model": "sentence-embedder-int8"}


def step(rate, **changes):
    return measurement(second(**changes), rate=rate, name=f"step: {rate:g}")


def slow(rate=1000.0, **changes):
    return step(rate, milliseconds=40.0, **changes)


def steps():
    return step(1000.0), step(1000.0), slow(1030.0), slow(1030.0)


def hold(rate, **changes):
    return load_of(step(rate, **changes), slo_ms=20.0)


def broken_off(result, **changes):
    return dataclasses.replace(result, broken_off=True, **changes)


class Bench:
    """Load tests with the given results, then holds of any rate; keeps their options."""

    def __init__(self, root, *results):
        self.folder, self.results, self.calls = root / "build/load", list(results), []
        self.during = lambda: None

    def __call__(self, paths, report, options):
        self.calls.append(options)
        self.during()
        options.require_consistent()
        result = self.results.pop(0) if self.results else hold(float(options.rate))
        return LoadReport(result=result, file=self.folder / "r.json")


def record_with(
    served, *holds, search=None, utilization=lambda *arguments: None, later=None, **changes
):
    """Record a capacity; the search finds 1,000 a second unless another is given.

    `later`: what SageMaker describes once the load runs.
    """
    run = Bench(served.root, searched(*steps()) if search is None else search, *holds)
    run.during = lambda: served.clients["sagemaker"].documents.update(later or {})
    options = {"endpoint": "sentence-embedder", "env": "dev", "record": True}
    load_options = LoadOptions(**options | changes)
    try:
        recorded = record_load(served.session, load_options, run=run, utilization=utilization)
    finally:
        served.calls = run.calls
    return recorded


def test_rate_that_was_held_is_written_into_the_lock_beside_its_manifest(tmp_path):
    served = served_endpoint(tmp_path)
    before = served.lock
    recorded = record_with(served, utilization=lambda *arguments: 81.5)
    _, load = served.calls
    assert (float(load.rate), load.seconds, float(load.slo), load.record) == (1000, 180, 20, False)
    assert served.capacity == {"ml.g5.xlarge": recorded.entry}
    assert recorded.entry.model_dump(exclude={"tool"}) == {
        "requests_per_second": 1000.0,
        "rows_per_request": 2,
        "slo_ms": 20.0,
        "percentile": 99.0,
        "instance_type": "ml.g5.xlarge",
        "server": "triton",
        "gpu_utilization_percent": 81.5,
        "endpoint": "dev-sentence-embedder",
        "date": "2026-01-02",
    }
    key = served.target.engine_key
    assert served.lock.engines[key].manifest == before.engines[key].manifest
    assert recorded.summary == (
        "One ml.g5.xlarge answers 1000 requests a second with p99 within 20 ms, its GPUs 81.5 "
        "% busy."
    )


def test_recorded_capacity_is_what_the_next_synth_scales_on(tmp_path):
    record_with(served_endpoint(tmp_path))
    every = deployments(read_tree(tmp_path), "dev")
    capacity = instance_capacity(next(d for d in every if d.name == "sentence-embedder"))
    assert capacity is not None and capacity.requests_per_second == 1000
    source = "served (roundhouse bench, held for 1 s, dev-sentence-embedder on ml.g5.xlarge"
    assert source in capacity.derivation


def test_rate_that_is_not_held_is_tried_lower(tmp_path):
    served = served_endpoint(tmp_path)
    recorded = record_with(served, load_of(slow(), slo_ms=20.0))
    search, *holds = served.calls
    assert search.is_search and search.seconds == 60
    assert [float(call.rate) for call in holds] == [1000.0, pytest.approx(1000 / 1.04)]
    assert recorded.entry.requests_per_second == 961.538
    shared = record_with(served_endpoint(tmp_path, changes=instances(3, 3)))
    assert shared.entry.requests_per_second == 333.333, "divided among three"


def test_local_measurement_stays_in_scratch_locks(tmp_path):
    served = served_endpoint(tmp_path, environment="local")
    recorded = record_with(served, env="local")
    assert recorded.lock == tmp_path / "build/local/locks/sentence-embedder.lock.yaml"
    assert served.capacity["ml.c7i.large"].gpu_utilization_percent is None
    file = tmp_path / "environments" / "local.yaml"
    file.write_text(file.read_text().replace("locks: build/local/locks", "locks: locks/local"))
    served = served_endpoint(tmp_path, environment="local")
    message = "locks/local/ holds reviewed locks, and the local cloud's speed is this machine's"
    with pytest.raises(RoundhouseError, match=message):
        record_with(served, env="local")
    assert served.capacity is None


def variant(**changes):
    fields = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.g5.xlarge"}
    return {"describe_endpoint_config": {"ProductionVariants": [{**fields, **changes}]}}


POOLS = [{"InstanceType": "ml.g5.xlarge"}]
OTHER_ARCHIVE = {"Environment": {"ROUNDHOUSE_MANIFEST_SHA256": "e" * 64}}
OTHER_ENGINE = {"ModelDataUrl": "s3://b/engines/0123/model.tar.gz", "Environment": {}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (instances(1, 1, EndpointStatus="Updating"), "it is Updating; wait until it is InServi"),
        (
            {"describe_model": {"PrimaryContainer": OTHER_ENGINE}},
            "it serves engines/0123/model.tar.gz, and the lock's engine is engines/",
        ),
        (
            {"describe_model": {"PrimaryContainer": OTHER_ARCHIVE}},
            "it serves an archive of engine .* that is not the lock's",
        ),
        (
            {"describe_endpoint_config": {"ProductionVariants": [{}, {}]}},
            "2 variants share its requests",
        ),
        (variant(InstancePools=POOLS), "several instance types, and which one answered is not kn"),
        (
            variant(InstanceType="ml.g5.2xlarge"),
            "it runs on ml.g5.2xlarge, and the files have ml.g5.xlarge",
        ),
        (
            {"describe_endpoint_config": {"AsyncInferenceConfig": {}, "ProductionVariants": [{}]}},
            "it is asynchronous",
        ),
        (instances(1, 2), "it has 1 instances and 2 are desired"),
    ],
    ids=[
        "updating",
        "engine",
        "archive",
        "two variants",
        "pools",
        "type",
        "asynchronous",
        "scaling",
    ],
)
def test_refuses_an_endpoint_that_is_not_the_locks_before_any_load(tmp_path, changes, message):
    served = served_endpoint(tmp_path, changes=changes)
    container = changes.get("describe_model", {}).get("PrimaryContainer")
    if container is OTHER_ARCHIVE:
        path = engine_archive_path(served.target.engine_key)
        shown = {**container, "ModelDataUrl": f"s3://b/{path}"}
        served.clients["sagemaker"].documents["describe_model"] = {"PrimaryContainer": shown}
    with pytest.raises(RoundhouseError, match=f"^--record: dev-sentence-embedder: .*{message}"):
        record_with(served)
    assert served.calls == [] and served.capacity is None


@pytest.mark.parametrize(
    ("copies", "fault"), [(2, None), (0, "it has 0 copies and 0 are desired; wait until they are")]
)
def test_model_that_scales_to_zero_is_measured_by_its_copies(tmp_path, copies, fault):
    file = copied_tree(tmp_path) / "models" / "sentence-embedder.yaml"
    file.write_text(file.read_text().replace("scaling: {min: 1", "scaling: {min: 0"))
    component = {
        "InferenceComponentStatus": "InService",
        "Specification": {"ModelName": "m"},
        "RuntimeConfig": {"CurrentCopyCount": copies, "DesiredCopyCount": copies},
    }
    served = served_endpoint(tmp_path, changes={"describe_inference_component": component})
    (described,) = served.clients["sagemaker"].documents["describe_endpoint_config"].values()
    del described[0]["ModelName"]
    if fault is None:
        assert record_with(served).entry.requests_per_second == 1000 / copies
    else:
        with pytest.raises(RoundhouseError, match=fault):
            record_with(served)


def test_refuses_a_shared_endpoint_of_several_instances_or_another_archive(tmp_path):
    served = served_endpoint(tmp_path, **SHARED, changes=instances(2, 2))
    with pytest.raises(RoundhouseError, match="2 instances share its models unevenly"):
        record_with(served, **SHARED)
    served = served_endpoint(tmp_path, **SHARED)
    entry = served.target.lock_entry.model_dump_json()
    other = entry.replace('"sha256":"', '"sha256":"b', 1).encode()
    served.clients["s3"].documents["get_object"] = object_of(other)
    with pytest.raises(RoundhouseError, match="in S3 is not the lock's"):
        record_with(served, **SHARED)


def test_refuses_an_engine_that_no_lock_has(tmp_path):
    command = "run: roundhouse build --env dev --model sentence-embedder"
    with pytest.raises(RoundhouseError, match=command):
        record_with(served_endpoint(tmp_path, build=False))


@pytest.mark.parametrize(
    "search",
    [
        searched(step(1000.0)),
        searched(step(1000.0), *(slow(1030.0, cpu_share=1.0, service=0.001),) * 2),
        searched(step(1000.0, cpu_share=0.99), step(1000.0, cpu_share=0.99)),
    ],
    ids=["no end", "the tool's end", "the tool's steps"],
)
def test_what_was_proven_is_recorded_with_that_word_beside_it(tmp_path, search):
    served = served_endpoint(tmp_path, environment="local")
    recorded = record_with(served, search=search, env="local")
    assert recorded.entry.requests_per_second == 1000
    assert recorded.entry.tool == "roundhouse bench, proven for 1 s"
    assert recorded.summary.endswith("within 20 ms (proven; more may hold).")
    searching, holding = served.calls
    assert (searching.seconds, holding.seconds) == (135, 45)


NEVER = [load_of(slow(), slo_ms=20.0)] * 3


@pytest.mark.parametrize(
    ("results", "later", "message"),
    [
        ([load_of(step(1000.0))], {}, "searched for no highest load"),
        ([broken_off(searched(*steps()))], {}, "the load test was broken off"),
        ([searched(slow(), slow())], {}, "no load held the SLO"),
        ([searched(*steps()), *NEVER], {}, "not held for 1 s"),
        (
            [searched(*steps())],
            instances(1, 1, EndpointConfigName="c-2"),
            "the endpoint changed during the load test",
        ),
    ],
    ids=["no search", "broken off", "nothing held", "never held", "changed"],
)
def test_refuses_what_proved_no_load_and_names_its_report(tmp_path, results, later, message):
    served, (search, *holds) = served_endpoint(tmp_path), results
    message += r".*; nothing was recorded, and the report is .*r\.json"
    with pytest.raises(RoundhouseError, match=message):
        record_with(served, *holds, search=search, later=later)
    assert served.capacity is None


class CloudWatch:
    """Gives one more datapoint at each call."""

    def __init__(self, *averages):
        self.averages, self.calls = averages, []

    def get_metric_statistics(self, **request):
        self.calls.append(request)
        return {"Datapoints": [{"Average": item} for item in self.averages[: len(self.calls)]]}


BEGIN = datetime.datetime(2026, 11, 21, 10, 0, 30, tzinfo=datetime.UTC)
END = BEGIN + datetime.timedelta(minutes=3)


def utilization(cloudwatch, gpus=1, end=END):
    """Return the percentage and the seconds that were waited for it."""
    waits = [0.0]
    percent = gpu_utilization_percent(
        cloudwatch, "dev-e", gpus, BEGIN, end, sleep=waits.append, now=lambda: sum(waits)
    )
    return percent, sum(waits)


def test_utilization_is_the_mean_of_the_whole_minutes_for_each_gpu():
    cloudwatch = CloudWatch(300.0, 340.0)
    assert utilization(cloudwatch, gpus=4) == (80.0, 15.0)
    (first, *_) = cloudwatch.calls
    assert (first["StartTime"].minute, first["EndTime"].minute) == (1, 3)
    assert {"Name": "VariantName", "Value": "AllTraffic"} in first["Dimensions"]


def test_utilization_is_of_what_came_in_time_and_of_whole_minutes_alone():
    assert utilization(CloudWatch(70.0)) == (70.0, 180.0)
    assert utilization(CloudWatch())[0] is None
    assert utilization(CloudWatch(70.0), end=BEGIN + datetime.timedelta(seconds=40))[0] is None


BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
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
    write_lock_entry(root / environment.locks, "chat", entry)
    (deployment,) = generation_deployments(read_tree(root), "cloud")
    return SimpleNamespace(root=root, deployment=deployment, entry=entry, environment=environment)


def record_knee_of(subject, sagemaker, result=None, *, during=lambda: None, options=OPTIONS):
    """Record what a load test came to; `during` happens while it runs."""

    def run(paths, report, options):
        during()
        return LoadReport(result=result, file=paths.build / "load" / "r.json")

    session = session_of(subject.root, lambda service: sagemaker, "cloud")
    return record_load(session, options, run=run)


def knees(subject):
    lock = read_lock(subject.root / subject.environment.locks, "chat", GenerationLock)
    return [entry.knee for entry in lock.checkpoints.values()]


def test_knee_of_one_copy_is_written_into_the_lock(subject):
    sagemaker = sagemaker_of(subject.entry.prefix)
    done = record_knee_of(subject, sagemaker, stream_search(*STREAM_PHASES))
    assert knees(subject) == [done.entry]
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
def test_refuses_copies_that_are_not_the_locks_before_any_load(subject, changes, reason):
    sagemaker = sagemaker_of(**{"prefix": subject.entry.prefix, **changes})
    with pytest.raises(RoundhouseError, match=reason):
        record_knee_of(subject, sagemaker, during=pytest.fail)


def test_refuses_copies_that_changed_during_the_load(subject):
    prefix = subject.entry.prefix
    sagemaker, later = sagemaker_of(prefix), sagemaker_of(prefix, 3, 3).documents
    with pytest.raises(RoundhouseError, match="changed during the load test; nothing was recorded"):
        record_knee_of(
            subject,
            sagemaker,
            stream_search(*STREAM_PHASES),
            during=lambda: sagemaker.documents.update(later),
        )
    assert knees(subject) == [None]


def test_requests_at_once_that_were_proven_are_recorded_with_that_word_beside_it(subject):
    proven = stream_search(stream_phase(8), ended="the 180 s of the search were over")
    done = record_knee_of(subject, sagemaker_of(subject.entry.prefix), proven)
    assert (done.entry.concurrency, done.entry.tool) == (4, "roundhouse bench, proven, 2 copies")
    assert "within the SLO (proven; more may hold): goodput" in done.summary
    assert "Proven: 8 requests at once" in proven.headline
    assert "More may hold: the 180 s of the search were over." in proven.headline


def test_refuses_what_is_no_knee(subject):
    missed = stream_search(*[stream_phase(8, ttft=0.5)] * 2)
    with pytest.raises(RoundhouseError, match="no load held the SLO"):
        record_knee_of(subject, sagemaker_of(subject.entry.prefix), missed)


def test_refuses_a_generator_without_a_checkpoint(subject):
    (subject.root / subject.environment.locks / "chat.lock.yaml").unlink()
    with pytest.raises(RoundhouseError, match="has no checkpoint to serve"):
        record_knee_of(subject, None)
    other = dataclasses.replace(OPTIONS, endpoint="x")
    with pytest.raises(RoundhouseError, match="'x': no such endpoint in this environment"):
        record_knee_of(subject, None, options=other)
