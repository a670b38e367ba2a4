"""`roundhouse deploy --endpoint NAME` verifies and deploys that endpoint alone."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from onboarding.fault import FaultsError
from roundhouse.cli import app as cli
from roundhouse.deploy import deployment
from roundhouse.deploy.builds import engines
from tests.unit.roundhouse.deploy.whole_session import whole_session
from tests.unit.roundhouse.engines import copied_tree

YES = deployment.DeployOptions(yes=True)
pytestmark = pytest.mark.unit


@pytest.fixture
def session(tmp_path):
    """The session of one endpoint; what was run is in `commands`."""
    commands = []
    whole = whole_session(tmp_path)

    def run(command, on_line=None):
        commands.append(command)
        return whole.run(command, on_line)

    run.commands = commands
    return replace(whole, endpoints=("sentence-embedder",), run=run)


def test_session_of_some_endpoints_is_theirs_alone(session):
    def names_of(*endpoints):
        return [d.name for d in replace(session, endpoints=endpoints).deployments()]

    assert names_of("sentence-embedder") == ["sentence-embedder"]
    assert names_of() == ["sentence-embedder", "text-shared"]
    message = r"unknown endpoint, given text-share;.*did you mean 'text-shared'"
    with pytest.raises(FaultsError, match=message):
        names_of("text-share")


def test_some_endpoints_are_synthesised_alone_and_all_that_is_synthesised_is_deployed(session):
    deployment.deploy(session, YES)
    synth, deploy = [c.argv for c in session.run.commands if "git" not in c.argv][-2:]
    assert synth[synth.index("endpoint=sentence-embedder") - 1] == "-c" and "**" in synth
    assert "**" in deploy and deploy[deploy.index("--concurrency") + 1] == "1"


def test_early_stacks_are_synthesised_whole_for_some_endpoints_too(session):
    deployment.deploy(session, YES)
    synth = next(c.argv for c in session.run.commands if "synth" in c.argv)
    assert not any(word.startswith("endpoint=") for word in synth) and "*/Images" in synth


def test_session_of_all_names_no_endpoint(session):
    deployment.deploy(replace(session, endpoints=()), YES)
    words = [word for command in session.run.commands for word in command.argv]
    assert not any(word.startswith("endpoint=") for word in words)


def test_engine_of_another_endpoint_is_neither_built_nor_verified(session):
    every = replace(session, endpoints=())
    targets = [target for item in every.deployments() for target in item.targets]
    other = next(t for t in targets if t.model.name == "sentence-embedder-fp32")
    del session.clients.objects[other.lock_entry.archive.path]
    assert engines.missing_engines(session) == ()
    (request,) = engines.missing_engines(every)
    assert request.key == other.engine_key
    done = deployment.deploy(session, YES)
    assert done.verified == 1 and done.built == ()
    assert "endpoint=sentence-embedder" in session.run.commands[-2].argv


def test_refuses_an_unknown_endpoint_in_one_sentence(tmp_path, monkeypatch, capsys):
    words = ["deploy", "--env", "dev", "--root", str(copied_tree(tmp_path))]
    monkeypatch.setattr(sys, "argv", ["roundhouse", *words, "--endpoint", "sentence-embeddr"])
    assert cli.exit_code() == 1
    message = " ".join(capsys.readouterr().err.split())
    assert message.startswith("models: unknown endpoint, given sentence-embeddr")
    assert message.endswith("'sentence-embedder'?")
