"""Engines of one plan: which request compiles it, and which are packaged of whose archive."""

from __future__ import annotations

import itertools
import json

import pytest
import yaml

from onboarding.lock import lock_path, read_lock, write_lock_entry
from onboarding.plan_source import NOT_REUSED, locked_plans
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy.builds import engines
from tests.fixtures.signer import Signer
from tests.unit.roundhouse.build_cloud import Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, entry_for

MODEL = "sentence-embedder"
CELLS = tuple(itertools.product((0, 100, 200, 300), (1, 2)))
"""Microseconds of the queue's delay, and instances."""


class Tree:
    """The repository's files for `dev`, with one model on a GPU that only training jobs have."""

    def __init__(self, folder):
        self.root = copied_tree(folder)
        for path in (self.root / "models").glob("*.yaml"):
            if path.name != f"{MODEL}.yaml":
                path.unlink()
        for path in (self.root / "endpoints").glob("*.yaml"):
            path.unlink()
        for path in (self.root / "environments").glob("*.yaml"):
            if path.name != "dev.yaml":
                path.unlink()
        spec = self.environment
        spec.pop("models", None)
        self.environment = spec
        self.objects = {}
        self.change(MODEL, endpoint={"instance_type": "ml.g6.xlarge"})

    @property
    def environment(self):
        return yaml.safe_load((self.root / "environments/dev.yaml").read_text())

    @environment.setter
    def environment(self, spec):
        (self.root / "environments/dev.yaml").write_text(yaml.safe_dump(spec))

    def change(self, name, into=None, **fields):
        """Change keys of a model file; `into`: in a copy of that name."""
        spec = yaml.safe_load((self.root / f"models/{name}.yaml").read_text())
        spec |= {"name": into or name, **fields}
        (self.root / f"models/{into or name}.yaml").write_text(yaml.safe_dump(spec))

    def batching(self, name, delay=100, instances=1, into=None):
        batching = {"max_queue_delay_us": delay}
        serving = {"server": "triton", "dynamic_batching": batching}
        self.change(name, into, serving={**serving, "instances_per_gpu": instances})

    def session(self):
        """A session with the files as they are; the bucket keeps what it has."""
        cloud = Cloud(deployments(read_tree(self.root), "dev"))
        cloud.objects = self.objects
        return session_of(self.root, cloud, "dev")

    def build(self, session=None):
        session = self.session() if session is None else session
        requests = engines.missing_engines(session)
        entries = engines.build_all(session, requests, sleep=lambda seconds: None)
        return session, entries

    @property
    def locks(self):
        return self.root / self.session().environment.locks

    def entries(self, model=MODEL):
        return read_lock(self.locks, model).engines


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def engine_tree(tree):
    """The tree, with its one engine built."""
    tree.build()
    return tree


def waves_given(session):
    """The engines of an execution's input, wave by wave: model, route and source of the plan."""
    (given,) = session.clients.given
    return [
        [
            (item["model"], item.get("planRoute", item["route"]), item.get("planFrom"))
            for item in wave
        ]
        for wave in given["waves"]
    ]


def test_eight_batching_and_instance_cells_compile_their_plan_once(tree):
    for number, (delay, instances) in enumerate(CELLS):
        tree.batching(MODEL, delay, instances, into=f"cell-{number}")
    (tree.root / f"models/{MODEL}.yaml").unlink()
    session, entries = tree.build()
    first, second = waves_given(session)
    assert len(entries) == len(CELLS)
    assert [route for _, route, _ in (*first, *second)] == ["training-job"] + 7 * ["cpu"]
    (compiled,) = [entry for entry in entries if entry.manifest.model == first[0][0]]
    assert {source for *_, source in second} == {compiled.manifest.engine_key}
    assert {item["route"] for item in session.clients.engines} == {"training-job"}
    assert len({entry.plan_key for entry in entries}) == 1
    assert len({entry.manifest.engine_key for entry in entries}) == len(CELLS)
    assert engines.missing_engines(tree.session()) == ()


def test_entries_that_would_be_other_words_of_a_command_are_no_source(engine_tree):
    (entry,) = engine_tree.entries().values()
    path = lock_path(engine_tree.locks, MODEL)
    for text in (entry.manifest.engine_key, entry.archive.sha256):
        plain = path.read_text()
        path.write_text(plain.replace(text, f"{text} --publish s3://other"))
        assert read_lock(engine_tree.locks, MODEL).engines
        assert locked_plans(engine_tree.locks, [entry.plan_key]) == {}
        path.write_text(plain)
    assert list(locked_plans(engine_tree.locks, [entry.plan_key])) == [entry.plan_key]


def test_changed_batching_is_packaged_on_a_cpu_of_the_locked_archive(engine_tree):
    (before,) = engine_tree.entries().values()
    engine_tree.batching(MODEL)
    session, (entry,) = engine_tree.build()
    source = f"{before.manifest.engine_key}:{before.archive.sha256}"
    assert waves_given(session) == [[(MODEL, "cpu", source)]]
    assert entry.plan_key == before.plan_key
    assert set(engine_tree.entries()) == {
        before.manifest.engine_key,
        entry.manifest.engine_key,
    }
    shown = session.report.console.file.getvalue()
    key = before.manifest.engine_key
    assert f"Packaging {MODEL} (not in the lock; of the plan of engine {key})" in shown


def rewrite(tree, **changes):
    """Change the fields of the one locked engine; a function gives a field of the entry's own."""
    (entry,) = tree.entries().values()
    given = {name: make(entry) if callable(make) else make for name, make in changes.items()}
    write_lock_entry(tree.locks, MODEL, entry.model_copy(update=given))


BUDGET = {"accuracy": {"dataset": "models/data/validation-sentences.txt"}}


def wanted_by_another(tree):
    """Give the locked engine the plan's key that another budget wants, as somebody might write."""
    tree.change(MODEL, **BUDGET)
    (request,) = engines.missing_engines(tree.session())
    rewrite(tree, plan_key=request.target.plan_key)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tree: tree.change(MODEL, **BUDGET), ""),
        # A lock or an archive of before plan keys.
        (lambda tree: rewrite(tree, plan_key=None), ""),
        (lambda tree: rewrite(
            tree, manifest=lambda entry: entry.manifest.model_copy(update={"files": {}})), ""),
        (wanted_by_another, ""),
        (lambda tree: tree.objects.pop(next(iter(tree.entries().values())).archive.path),
         f"; the plan of engine KEY {NOT_REUSED}: its archive is gone from S3"),
        (lambda tree: setattr(
            tree, "environment", {**tree.environment, "trusted_signers": [Signer().public]}),
         f"; the plan of engine KEY {NOT_REUSED}: its lock entry holds no signature"),
    ],
    ids=["budget", "no plan key", "no files", "plan of another", "gone", "not signed"],
)  # fmt: skip
def test_refuses_another_plan_and_compiles_with_the_reason(engine_tree, change, reason):
    (entry,) = engine_tree.entries().values()
    change(engine_tree)
    engine_tree.batching(MODEL)
    (request,) = engines.missing_engines(engine_tree.session())
    assert (request.plan_from, request.route) == (None, "training-job")
    reason = reason.replace("KEY", entry.manifest.engine_key)
    assert request.reason == f"not in the lock{reason}"
    assert waves_given(engine_tree.build()[0]) == [[(MODEL, "training-job", None)]]


def test_takes_the_next_lock_s_plan_where_the_first_is_gone(engine_tree):
    (entry,) = engine_tree.entries().values()
    engine_tree.batching(MODEL, into="second")
    engine_tree.build()
    del engine_tree.objects[entry.archive.path]
    engine_tree.batching(MODEL, delay=7, into="third")
    requests = {
        item.target.model.name: item for item in engines.missing_engines(engine_tree.session())
    }
    (second,) = engine_tree.entries("second").values()
    # What is gone is engine_tree again, of the plan that is left.
    assert {str(request.plan_from) for request in requests.values()} == {
        f"{second.manifest.engine_key}:{second.archive.sha256}"
    }
    assert sorted(requests) == [MODEL, "third"]


def test_request_whose_first_is_not_built_compiles_itself(tree):
    for number in range(2):
        tree.batching(MODEL, number, into=f"cell-{number}")
    (tree.root / f"models/{MODEL}.yaml").unlink()
    session = tree.session()
    requests = engines.missing_engines(session)
    (follower,) = [request for request in requests if request.plan_from is not None]
    engines.build_all(session, (follower,), sleep=lambda seconds: None)
    assert waves_given(session) == [[(follower.target.model.name, "training-job", None)]]


def test_refused_reuse_is_shown_with_its_reason_and_the_engine_is_there(engine_tree):
    engine_tree.batching(MODEL)
    session = engine_tree.session()
    session.clients.not_reused = {MODEL: "the plan of engine 1 is not reused: nobody signed it."}
    _, (entry,) = engine_tree.build(session)
    assert entry.manifest.engine_key in engine_tree.entries()
    shown = session.report.console.file.getvalue()
    assert "its plan was compiled: the plan of engine 1 is not reused: nobody signed it" in shown


def test_damaged_lock_of_a_model_that_is_gone_offers_no_plan(engine_tree):
    path = lock_path(engine_tree.locks, "gone")
    (entry,) = engine_tree.entries().values()
    path.write_text(f"no lock, but it names {entry.plan_key}\n")
    engine_tree.batching(MODEL)
    (request,) = engines.missing_engines(engine_tree.session())
    assert request.plan_from.engine_key == entry.manifest.engine_key


def test_plan_that_was_compiled_is_preferred_to_one_that_was_packaged(engine_tree):
    (entry,) = engine_tree.entries().values()
    deployment = engine_tree.session().deployments()[0]
    copy = entry_for(deployment, deployment.targets[0], engine_key="0" * 20)
    record = {
        "engine_key": entry.manifest.engine_key,
        "archive_sha256": entry.archive.sha256,
        "builder": copy.manifest.builder.model_dump(mode="json"),
    }
    document = json.loads(copy.model_dump_json()) | {
        "repackaged": record,
        "plan_key": entry.plan_key,
    }
    write_lock_entry(
        engine_tree.locks, MODEL, type(entry).model_validate_json(json.dumps(document))
    )
    engine_tree.objects[copy.archive.path] = b"archive"
    engine_tree.batching(MODEL)
    (request,) = engines.missing_engines(engine_tree.session())
    assert request.plan_from.engine_key == entry.manifest.engine_key
