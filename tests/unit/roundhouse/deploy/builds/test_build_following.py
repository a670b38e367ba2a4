"""How an execution of the build machine is followed, stopped, and left to itself."""

from __future__ import annotations

import pytest

from roundhouse.deploy.builds import engines
from roundhouse.errors import NotReadyError
from tests.unit.roundhouse.build_cloud import ARN, Cloud, session_of
from tests.unit.roundhouse.engines import copied_tree, local_deployments


@pytest.fixture
def session(tmp_path):
    tree = copied_tree(tmp_path)
    return session_of(tree, Cloud(local_deployments(tree)))


def test_an_interrupt_stops_the_execution_then_its_builds_and_jobs_and_nobody_elses(session):
    session.clients.interrupt_at = 2
    naps = []
    with pytest.raises(KeyboardInterrupt):
        engines.build_all(
            session, engines.missing_engines(session, ("sentence-embedder",)), sleep=naps.append
        )
    job = f"roundhouse-local--key-{session.clients.tag}-0"
    once = ["roundhouse-local-build-cpu:mine", "roundhouse-local-build-gpu:mine", job]
    # Twice: what was being started at that moment is there a little later.
    assert session.clients.stopped == [ARN, *once, *once]
    assert naps == [0.5, 0.5]


def test_an_interrupt_stops_more_training_jobs_than_sagemaker_lists_on_a_page(session):
    session.clients.interrupt_at, session.clients.jobs = 2, 12
    with pytest.raises(KeyboardInterrupt):
        engines.build_all(
            session,
            engines.missing_engines(session, ("sentence-embedder",)),
            sleep=lambda seconds: None,
        )
    jobs = {name for name in session.clients.stopped if name.startswith("roundhouse-local--key")}
    assert jobs == {f"roundhouse-local--key-{session.clients.tag}-{number}" for number in range(12)}


def test_builds_are_followed_to_the_end_though_aws_does_not_answer_for_a_while(session):
    session.clients.away = (2, 3, 4)
    assert (
        len(
            engines.build_all(session, engines.missing_engines(session), sleep=lambda seconds: None)
        )
        == 3
    )
    shown = session.report.console.file.getvalue()
    assert shown.count("The builds go on; asking again") == 1


def test_builds_are_followed_to_the_end_though_aws_throttles_and_says_so(session):
    session.clients.away, session.clients.refusal, naps = (2, 3), "ThrottlingException", []
    assert len(engines.build_all(session, engines.missing_engines(session), sleep=naps.append)) == 3
    shown = " ".join(session.report.console.file.getvalue().split())
    assert "AWS answered ThrottlingException" in shown
    assert "The builds go on; asking again" in shown and len(naps) == 3


@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException", "NoSuchThing"])
def test_refuses_at_once_what_aws_refuses_for_good_though_it_answered_before(session, code):
    session.clients.away, session.clients.refusal, naps = range(2, 10_000), code, []
    with pytest.raises(NotReadyError, match=f"AWS answered {code}: .*nobody follows them: {ARN}"):
        engines.build_all(session, engines.missing_engines(session), sleep=naps.append)
    assert len(naps) == 1
    assert "asking again" not in session.report.console.file.getvalue()
    assert session.clients.stopped == []


def test_refuses_to_follow_builds_when_aws_never_answers_again_and_says_that_they_go_on(session):
    session.clients.away, naps = range(2, 10_000), []
    message = (
        rf"The builds go on, and nobody follows them: {ARN}; run the same command again "
        r"to record what they publish"
    )
    with pytest.raises(NotReadyError, match=message):
        engines.build_all(session, engines.missing_engines(session), sleep=naps.append)
    assert sum(naps) == pytest.approx(300, abs=1)
    assert session.clients.stopped == []


def test_refuses_builds_of_which_nothing_was_ever_seen_at_once(session):
    session.clients.away, naps = range(1, 10_000), []
    with pytest.raises(NotReadyError, match="The builds go on, and nobody follows them"):
        engines.build_all(session, engines.missing_engines(session), sleep=naps.append)
    assert naps == []
