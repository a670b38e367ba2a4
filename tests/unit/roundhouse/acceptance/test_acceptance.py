"""A run's steps: each fails alone, ends in time, and leaves a verdict for all that it assumes."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from roundhouse.acceptance.acceptance import (
    places,
    require_clean_record,
    require_possible,
    require_unused,
    run_step,
)
from roundhouse.acceptance.assumptions import Assumption, Findings, Place, Verdict, by_name
from roundhouse.acceptance.cleanup_record import (
    CleanupRecord,
    add_created,
    delete_record,
    read_record,
    record_path,
    write_record,
)
from roundhouse.acceptance.evidence import Evidence, markdown
from roundhouse.acceptance.setup import new_setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.report import Report
from tests.unit.roundhouse.acceptance.test_setup import environment

pytestmark = pytest.mark.unit

ROWS = (
    Assumption(name="step.one", says="first", expected="1"),
    Assumption(name="step.two", says="second", expected="2"),
    Assumption(name="step.gpu", says="third", expected="3", place=Place.gpu),
)


def context_of(folder, setup=None):
    report = Report(console=Console(file=io.StringIO(), width=200))
    return AcceptanceContext(
        session=SimpleNamespace(report=report),
        setup=setup or new_setup(environment("local"), in_local_cloud=True),
        evidence=Evidence(folder=Path(folder)),
        findings=Findings(assumptions=by_name(ROWS)),
    )


def step_of(run, **options):
    return AcceptanceStep(
        name="step",
        title="A step",
        limit_minutes=options.pop("limit_minutes", 1),
        assumptions=lambda setup: ROWS,
        run=run,
        **options,
    )


def verdicts(context, reason):
    table = context.findings.table({"step": reason}, places(context.setup))
    return [row.verdict for row in table], [row.found for row in table]


def test_a_gpu_line_is_not_applicable_in_the_local_cloud_and_never_the_same(tmp_path):
    context = context_of(tmp_path)

    def run(context):
        context.findings.record("step.one", 1)
        context.findings.record("step.two", "two")
        return "done"

    found, texts = verdicts(context, run_step(context, step_of(run)))
    assert found == [Verdict.same, Verdict.differs, Verdict.not_applicable]
    assert texts[2] == "this environment is not a GPU"


@pytest.mark.parametrize(
    "error", [NotReadyError("AWS is away."), ValueError("what nobody foresaw")]
)
def test_a_step_that_fails_leaves_its_reason_and_lets_others_go_on(tmp_path, error):
    context = context_of(tmp_path)

    def run(context):
        context.findings.record("step.one", 1)
        raise error

    found, texts = verdicts(context, run_step(context, step_of(run)))
    assert found == [Verdict.same, Verdict.differs, Verdict.not_applicable]
    assert str(error) in texts[1]
    assert context.failed == {"step"}
    assert str(error) in (tmp_path / "failures" / "step.txt").read_text()


def test_a_step_ends_at_its_limit(tmp_path):
    context = context_of(tmp_path)
    begin = time.monotonic()

    def run(context):
        while time.monotonic() - begin < 30:
            pass
        return "too late"

    reason = run_step(context, step_of(run, limit_minutes=0.001))
    assert time.monotonic() - begin < 10
    found, texts = verdicts(context, reason)
    assert found[:2] == [Verdict.differs, Verdict.not_reached]
    assert texts[0] == "no end within 0.001 minutes"


def test_ctrl_c_ends_the_run(tmp_path):
    def run(context):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_step(context_of(tmp_path), step_of(run))


def test_an_obstacle_leaves_every_assumption_not_reached(tmp_path):
    context = context_of(tmp_path)
    reason = run_step(context, step_of(lambda context: "", obstacle=lambda context: "no engine"))
    found, texts = verdicts(context, reason)
    assert found == [Verdict.not_reached, Verdict.not_reached, Verdict.not_applicable]
    assert texts[0] == "no engine"


def test_a_difference_stays_whatever_is_found_later():
    findings = Findings(assumptions=by_name(ROWS))
    findings.record("step.one", "other")
    findings.record("step.one", "1")
    assert findings.rows["step.one"].verdict is Verdict.differs


def test_the_page_names_differences_first_and_escapes_cells(tmp_path):
    findings = Findings(assumptions=by_name(ROWS))
    findings.record("step.two", "a | b")
    page = markdown("Run", findings.table({}, (Place.anywhere,)))
    head, _, rest = page.partition("## Every assumption")
    assert r"| a \| b | differs |" in head and "step.one" not in head
    assert rest.count("\n| ") == 5


def test_refuses_two_assumptions_of_one_name():
    with pytest.raises(ValueError, match=r"step\.one"):
        by_name((*ROWS, ROWS[0]))


def test_refuses_an_environment_without_a_gpu_route():
    setup = new_setup(environment("dev", platform="triton-24.10-cpu"), in_local_cloud=False)
    with pytest.raises(RoundhouseError, match="no build route has a GPU"):
        require_possible(setup)
    require_possible(new_setup(environment("local"), in_local_cloud=True))


def test_refuses_a_region_without_the_types():
    setup = new_setup(environment("dev", region="ap-south-2"), in_local_cloud=False)
    with pytest.raises(RoundhouseError, match=r"ap-south-2 .* hosts none"):
        require_possible(setup)


def record_of(**changes):
    return CleanupRecord(
        environment=new_setup(environment("dev"), in_local_cloud=False).environment,
        origin="dev",
        in_local_cloud=False,
        begun_at="2026-11-23T02:00:00+00:00",
        evidence="build/acceptance/dev/1",
        **changes,
    )


def test_record_is_on_disk_before_a_creation_and_refuses_the_next_run(tmp_path):
    write_record(tmp_path, record_of())
    record = add_created(tmp_path, record_of(), ("stack a", "bucket b", "stack a"))
    assert read_record(tmp_path) == record
    assert record.created == ("stack a", "bucket b")
    with pytest.raises(RoundhouseError, match=r"02:00:00.*interrupted.*--env dev --clean"):
        require_clean_record(tmp_path, "dev")
    delete_record(tmp_path)
    require_clean_record(tmp_path, "dev")


def test_refuses_a_record_that_is_none(tmp_path):
    record_path(tmp_path).write_text("{}")
    with pytest.raises(RoundhouseError, match="is no record of an acceptance run"):
        read_record(tmp_path)


def test_refuses_a_record_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotReadyError, match="nothing is created without it"):
        write_record(tmp_path / "file", record_of())


class Stacks:
    """An account that holds a stack of another machine's run, and nothing else."""

    def __call__(self, service):
        return self

    def get_paginator(self, operation):
        stack = {"StackName": "roundhouse-acceptance-builds", "StackStatus": "CREATE_COMPLETE"}
        pages = [{"StackSummaries": [stack]}] if operation == "list_stacks" else []
        return SimpleNamespace(paginate=lambda **options: iter(pages))

    def head_bucket(self, Bucket):
        from botocore.exceptions import ClientError

        raise ClientError({"Error": {"Code": "404", "Message": ""}}, "HeadBucket")


def test_refuses_an_account_that_holds_another_run():
    own = new_setup(environment("dev"), in_local_cloud=False).environment
    session = SimpleNamespace(clients=Stacks(), environment=own)
    with pytest.raises(RoundhouseError, match=r"stack roundhouse-acceptance-builds\).*--clean"):
        require_unused(session, "dev")
