"""What `roundhouse status` says of endpoints with no cloud up, or an account that it cannot ask."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from onboarding.lock import LockEntry, write_lock_entry
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.aws.clients import calling
from roundhouse.cli import app as cli
from roundhouse.cli.options import Format
from roundhouse.cli.status import status
from roundhouse.status.state import UNKNOWN, Looking, State
from roundhouse.status.table import unknown_lines
from tests.unit.roundhouse.engines import copied_tree, entry_for

pytestmark = pytest.mark.unit


def locked_tree(root, environment="dev", **manifest):
    tree = copied_tree(root)
    for deployment in deployments(read_tree(tree), environment):
        for target in deployment.targets:
            entry: LockEntry = entry_for(deployment, target, **manifest)
            write_lock_entry(tree / deployment.environment.locks, target.model.name, entry)
    return tree


def test_check_refuses_a_set_that_cannot_work_and_notes_one_that_costs(
    tmp_path, capsys, monkeypatch
):
    def check(root, *words):
        monkeypatch.setattr("sys.argv", ["roundhouse", "check", "--root", str(root), *words])
        return cli.exit_code(), *capsys.readouterr()

    code, out, _ = check(
        locked_tree(tmp_path / "large", device_memory_mib=30000.0), "--format", "json"
    )
    faults = json.loads(out)
    assert code == 1 and {fault["file"] for fault in faults} == {
        "endpoints/text-shared.yaml",
        "models/sentence-embedder.yaml",
    }
    assert all(fault["line"] for fault in faults)
    code, out, _ = check(locked_tree(tmp_path / "tight", device_memory_mib=15000.0))
    assert (
        code == 0
        and "no fault" in out
        and "Note: dev: Endpoint 'text-shared' on ml.g5.xlarge: its 2 models take 30000" in out
    )


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "No."}}, "HeadObject")
AWAY = EndpointConnectionError(endpoint_url="https://s3.us-east-1.amazonaws.com")


class Account:
    """Fails at every question, and counts them."""

    def __init__(self, failure):
        self.failure, self.calls = failure, 0

    def __call__(self, service):
        with calling(f"AWS {service}"):
            return self

    def look(self, clients):
        self.calls += 1
        with calling("Endpoint a"):
            raise self.failure


@pytest.mark.parametrize(
    ("failure", "calls", "reason"),
    [(AWAY, 1, "EndpointConnectionError"), (NoCredentialsError(), 1, "NoCredentialsError")],
)
def test_an_account_that_is_out_of_reach_is_called_once(failure, calls, reason):
    account = Account(failure)
    looking = Looking(clients=account)
    assert [looking.find("archive", account.look) for _ in range(3)] == [None] * 3
    assert account.calls == calls and [gap.reason for gap in looking.unknown.values()] == [reason]


def test_an_engine_that_may_not_be_read_hides_no_other():
    account = Account(DENIED)
    looking = Looking(clients=account)
    assert looking.find("archive", account.look) is None
    assert looking.find("archive", lambda clients: "in S3") == "in S3"
    (why,) = looking.unknown.values()
    assert (why.column, why.reason) == (
        "archive",
        "AccessDenied",
    ) and "credentials of the environment's account" in why.sentence


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_status_without_credentials_says_why_in_one_line_and_in_json(
    no_credentials, tmp_path, capsys
):
    tree = copied_tree(tmp_path / "tree")
    status("dev", root=tree)
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("Unknown, because")
    ]
    assert len(lines) == 1 and "no AWS credentials were found; set AWS_PROFILE" in lines[0]
    status("dev", root=tree, form=Format.json)
    found = json.loads(capsys.readouterr().out)
    assert [(gap["column"], gap["reason"]) for gap in found["unknown"]] == [
        ("archive", "NoCredentialsError"),
        ("endpoint_status", "NoCredentialsError"),
    ]
    assert {engine["archive"] for engine in found["engines"]} == {UNKNOWN}


def test_status_does_not_fail_over_a_profile_that_is_not_there(
    no_credentials, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("AWS_PROFILE", "nope")
    status("dev", root=copied_tree(tmp_path / "tree"), form=Format.json)
    assert {gap["reason"] for gap in json.loads(capsys.readouterr().out)["unknown"]} == {
        "ProfileNotFound"
    }


def test_nothing_unknown_prints_nothing():
    known = State(environment="dev", cloud=None, unknown=(), engines=())
    assert list(unknown_lines(known)) == []
