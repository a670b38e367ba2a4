"""Tokens of jobs: who gets one, and what it says."""

import base64
import hashlib
import threading

import pytest

from tests.rehearsal.forge.identity import SigningKey
from tests.rehearsal.forge_client import job, running_forge

pytestmark = pytest.mark.unit

TOKEN = {"id-token": "write"}
OLD, IMMUTABLE = "repo:acme/models", "repo:acme@123456/models@456789"


@pytest.fixture(scope="module", params=[False, True], ids=["old", "immutable"])
def parts(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("identity") / "forge"
    with running_forge(folder, is_immutable=request.param) as (forge, owner, stranger):
        yield forge, owner, stranger, IMMUTABLE if request.param else OLD


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({}, ":ref:refs/heads/main"),
        ({"event": "pull_request", "ref": "refs/pull/1/merge"}, ":pull_request"),
        ({"environment": "dev"}, ":environment:dev"),
        ({"environment": "dev", "event": "pull_request"}, ":environment:dev"),
    ],
)
def test_subject_names_environment_pull_request_or_ref(parts, fields, subject):
    forge, *_, name = parts
    _, client = job(forge, permissions=TOKEN, **fields)
    assert client.identity()["sub"] == f"{name}{subject}"


def test_claims_name_repository_workflow_and_job_workflow(parts):
    forge, *_ = parts
    run, client = job(forge, permissions=TOKEN, environment="dev")
    claims = client.identity("other-audience")
    assert claims["job_workflow_ref"] == "acme/models/.github/workflows/run.yml@refs/heads/main"
    assert claims["workflow_ref"] == "acme/models/.github/workflows/x.yml@refs/heads/main"
    assert (claims["repository_id"], claims["repository_owner_id"]) == ("456789", "123456")
    assert (claims["environment"], claims["aud"]) == ("dev", "other-audience")
    assert claims["exp"] > claims["iat"]
    assert claims["run_id"] == str(run.id)


@pytest.mark.parametrize("permissions", [{}, {"id-token": "read"}, {"contents": "write"}])
def test_refuses_a_job_without_the_permission(parts, permissions):
    forge, *_ = parts
    _, client = job(forge, permissions=permissions)
    assert client.identity() == (
        403,
        "No token: the job has no `id-token: write`, or the run is a fork's",
    )


@pytest.mark.parametrize("state", ["approved", "rejected"])
def test_token_of_an_environment_waits_for_its_reviewer(parts, state):
    forge, owner, stranger, _ = parts
    reviewers = [{"type": "User", "id": 123456}]
    path = "/repos/acme/models/environments/prod"
    assert owner.send("PUT", path, {"reviewers": reviewers})[0] == 200
    run, client = job(forge, permissions=TOKEN, environment="prod")
    found = []
    waiting = threading.Thread(target=lambda: found.append(client.identity()))
    waiting.start()
    path = f"/repos/acme/models/actions/runs/{run.id}/pending_deployments"
    (pending,) = owner.send("GET", path)[1]
    review = {"environment_ids": [pending["environment"]["id"]], "state": state, "comment": "x"}
    assert stranger.send("POST", path, review)[0] == 422
    assert not found
    assert owner.send("POST", path, review)[0] == 200
    waiting.join(10)
    assert (state == "approved") == isinstance(found[0], dict)
    assert owner.send("GET", path)[1] == []


def test_key_set_verifies_a_token_and_no_other():
    key = SigningKey.generate()
    (public,) = key.key_set()["keys"]
    number, exponent = (int.from_bytes(decoded(public[name])) for name in ("n", "e"))
    signed, _, signature = key.sign({"a": 1}).rpartition(".")
    padded = pow(int.from_bytes(decoded(signature)), exponent, number)
    for text, is_signed in ((signed, True), (f"{signed}x", False)):
        digest = hashlib.sha256(text.encode()).digest()
        assert padded.to_bytes(128).endswith(digest) is is_signed


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
