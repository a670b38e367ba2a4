"""The forge's REST API: what GitHub answers, by requests that GitHub's OpenAPI allows."""

import pytest

from tests.rehearsal.forge_client import commit, git, job, running_forge

pytestmark = pytest.mark.unit

REPOSITORY = "/repos/acme/models"
PULL = {"title": "a model", "head": "mallory:model", "base": "main", "body": "please"}


@pytest.fixture
def parts(tmp_path):
    with running_forge(tmp_path / "forge") as parts:
        yield *parts, tmp_path


@pytest.fixture
def pull(parts):
    return open_pull_request(parts)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A forge with a pull request, for requests that change nothing."""
    folder = tmp_path_factory.mktemp("refusing")
    with running_forge(folder / "forge") as parts:
        open_pull_request((*parts, folder))
        yield parts[1]


def open_pull_request(parts):
    _, _, stranger, folder = parts
    commit(stranger, folder / "fork", "mallory/models", "model", {"models/m.yaml": "a"}, "main")
    status, document, _ = stranger.send("POST", f"{REPOSITORY}/pulls", PULL)
    assert status == 201, document
    return document


def test_fork_pull_request_has_commits_files_and_a_merge(parts, pull):
    forge, owner, _, _ = parts
    files = owner.send("GET", f"{REPOSITORY}/pulls/1/files")[1]
    assert files == [{"filename": "models/m.yaml", "status": "added"}]
    repository = forge.store.repositories["acme/models"]
    assert pull["head"]["sha"] == repository.git.commit("refs/pull/1/head")
    assert repository.git.text("refs/pull/1/merge", "models/m.yaml") == "a"
    names = [event.name for event in forge.store.events]
    assert names == ["push", "push", "pull_request", "pull_request_target"]


def test_merge_moves_the_base_and_is_refused_twice(parts, pull):
    forge, owner, _, _ = parts
    status, merged, _ = owner.send("PUT", f"{REPOSITORY}/pulls/1/merge", {})
    assert (status, merged["merged"]) == (200, True)
    repository = forge.store.repositories["acme/models"]
    assert repository.git.text("main", "models/m.yaml") == "a"
    assert forge.store.events[-1].sha == merged["sha"] == repository.git.commit("main")
    assert owner.send("PUT", f"{REPOSITORY}/pulls/1/merge", {})[0] == 405
    assert owner.send("GET", f"{REPOSITORY}/pulls")[1] == []


def test_push_to_the_head_brings_the_pull_request_up_to_date(parts, pull):
    forge, owner, stranger, folder = parts
    commit(stranger, folder / "two", "mallory/models", "model", {"models/n.yaml": "b"}, "model")
    found = owner.send("GET", f"{REPOSITORY}/pulls/1")[1]
    assert found["head"]["sha"] != pull["head"]["sha"]
    assert forge.store.events[-1].payload["action"] == "synchronize"


def test_comments_come_in_pages(parts, pull):
    _, owner, _, _ = parts
    path = f"{REPOSITORY}/issues/1/comments"
    for number in range(5):
        owner.send("POST", path, {"body": f"comment {number}"})
    status, items, headers = owner.send("GET", f"{path}?per_page=2&page=2")
    assert status == 200
    assert [item["body"] for item in items] == ["comment 2", "comment 3"]
    assert "page=3" in headers["Link"]
    assert owner.send("GET", f"{path}?per_page=2&page=3")[2]["Link"] is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/issues/1/comments", {"text": "x"}, 422, "field text is unknown"),
        ("POST", "/issues/1/comments", {}, 422, '"body" is a required property'),
        ("POST", "/issues/1/comments", {"body": 7}, 422, 'not of type "string"'),
        ("POST", "/issues/1/comments", {"body": "x" * 65537}, 422, "too long"),
        ("POST", "/issues/9/comments", {"body": "x"}, 404, "Not Found"),
        ("GET", "/issues?pages=2", None, 422, "query parameter pages is unknown"),
        ("PATCH", "/issues/1", {"state": "shut"}, 422, '"shut" is not one of'),
        ("POST", "/pulls", PULL, 422, "already exists"),
        ("POST", "/pulls", {**PULL, "head": "acme:main"}, 422, "No commits between"),
        ("POST", "/pulls", {**PULL, "head": "acme:gone"}, 422, "no branch"),
        ("PUT", "/pulls/1/merge", {"sha": "0" * 40}, 409, "Head branch was modified"),
        ("POST", "/actions/workflows/y.yml/dispatches", {"ref": "main"}, 404, "Not Found"),
        ("POST", "/actions/workflows/x.yml/dispatches", {"ref": "gone"}, 422, "No ref found"),
        ("POST", "/actions/workflows/x.yml/dispatches", {"ref": "main"}, 422, "'environment'"),
        ("GET", "/nothing", None, 404, "Not Found"),
    ],
)
def test_refuses(refusing, method, path, body, status, message):
    found = refusing.send(method, f"{REPOSITORY}{path}", body)
    assert found[0] == status, found
    assert message in found[1]["message"]


def test_refuses_an_unknown_token(parts):
    _, owner, _, _ = parts
    owner.token = "other"
    assert owner.send("GET", "/user")[:2] == (
        401,
        {"message": "Bad credentials", "documentation_url": "https://docs.github.com"},
    )


def test_run_token_may_do_what_its_job_may(parts, pull):
    forge, _, _, folder = parts
    _, writer = job(forge, permissions={"issues": "write", "contents": "read"})
    path = f"{REPOSITORY}/issues/1/comments"
    assert writer.send("POST", path, {"body": "plan"})[1]["user"]["type"] == "Bot"
    _, reader = job(forge, permissions={"issues": "read"})
    assert reader.send("GET", path)[0] == 200
    assert reader.send("POST", path, {"body": "plan"})[0] == 403
    refused = commit(writer, folder / "w", "acme/models", "w", {"a": "b"}, "main")
    assert "403" in refused
    assert "403" in git(folder, writer, "ls-remote", f"{forge.url}/mallory/models.git")


def test_run_of_a_fork_reads_only(parts, pull):
    forge, _, _, _ = parts
    _, fork = job(forge, permissions={"issues": "write", "id-token": "write"}, is_fork=True)
    path = f"{REPOSITORY}/issues/1/comments"
    assert fork.send("GET", path)[0] == 200
    assert fork.send("POST", path, {"body": "plan"})[0] == 403
    assert fork.identity()[0] == 403


def test_what_a_run_does_starts_nothing_except_dispatches(parts, pull):
    forge, _, _, folder = parts
    _, bot = job(forge, permissions={"contents": "write", "actions": "write", "issues": "write"})
    before = len(forge.store.events)
    assert commit(bot, folder / "b", "acme/models", "b", {"a": "b"}, "main") == ""
    bot.send("POST", f"{REPOSITORY}/issues/1/labels", {"labels": ["build"]})
    assert len(forge.store.events) == before
    dispatch = {"ref": "main", "inputs": {"environment": "dev"}}
    path = f"{REPOSITORY}/actions/workflows/x.yml/dispatches"
    assert bot.send("POST", path, dispatch)[0] == 204
    assert forge.store.events[-1].payload["inputs"] == {"environment": "dev", "reason": "none"}


def test_labels_are_added_once_and_removed(parts, pull):
    forge, owner, _, _ = parts
    path = f"{REPOSITORY}/issues/1/labels"
    for _ in range(2):
        owner.send("POST", path, {"labels": ["build"]})
    labels = [e.name for e in forge.store.events if e.payload.get("action") == "labeled"]
    assert labels == ["pull_request", "pull_request_target"]
    assert owner.send("DELETE", f"{path}/build")[1] == []
    assert owner.send("DELETE", f"{path}/build")[0] == 404


def test_author_may_not_approve_a_pull_request(parts, pull):
    _, owner, stranger, _ = parts
    path = f"{REPOSITORY}/pulls/1/reviews"
    assert stranger.send("POST", path, {"event": "APPROVE"})[0] == 422
    assert owner.send("POST", path, {"event": "APPROVE"})[1]["state"] == "APPROVED"


def test_artifact_is_read_by_its_run_and_by_others_that_may(parts):
    forge, _, _, _ = parts
    run, own = job(forge, permissions={})
    path = "/artifacts/plan"
    assert own.send("POST", path, {"plan": 1}, url=forge.url)[0] == 201
    assert own.send("POST", path, {"plan": 2}, url=forge.url)[0] == 409
    assert own.send("GET", path, url=forge.url)[:2] == (200, {"plan": 1})
    listing = f"{REPOSITORY}/actions/runs/{run.id}/artifacts?name=plan"
    assert own.send("GET", listing)[0] == 403
    _, other = job(forge, permissions={"actions": "read"})
    assert other.send("GET", path, url=forge.url)[0] == 404
    (artifact,) = other.send("GET", listing)[1]["artifacts"]
    content = f"{REPOSITORY}/actions/artifacts/{artifact['id']}/zip"
    assert other.send("GET", content)[1] == {"plan": 1}
