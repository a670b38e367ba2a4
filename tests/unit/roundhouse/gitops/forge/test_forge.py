"""Comments, issues, pull requests and workflows, the same on GitHub and GitLab."""

from __future__ import annotations

import pytest

from roundhouse.errors import NotReadyError
from roundhouse.gitops.forge.forge import forge_of
from roundhouse.gitops.forge.gitlab import GitLab
from roundhouse.gitops.markdown import MOST_CHARACTERS
from tests.unit.roundhouse.gitops.forge.forge_server import REPOSITORY

pytestmark = pytest.mark.unit

MARKER = "<!-- roundhouse:plan -->"


def variables(kind, url):
    if kind == "github":
        return {"GITHUB_REPOSITORY": REPOSITORY, "GITHUB_TOKEN": "t", "GITHUB_API_URL": url}
    return {"CI_PROJECT_ID": "7", "GITLAB_TOKEN": "t", "CI_API_V4_URL": url}


@pytest.fixture(params=["github", "gitlab"])
def forge(request, server):
    return forge_of(variables(request.param, server.url))


def writes(server):
    return [method for method, _, _ in server.requests if method != "GET"]


def test_comment_is_created_once_then_updated(forge, server):
    first = forge.upsert_comment(5, MARKER, "one")
    assert forge.upsert_comment(5, MARKER, "two") == first
    (comment,) = server.texts["comment"]
    assert comment["body"] == f"{MARKER}\ntwo"


def test_same_comment_is_not_written_again(forge, server):
    forge.upsert_comment(5, MARKER, "one")
    forge.upsert_comment(5, MARKER, "one")
    assert writes(server) == ["POST"]


def test_comment_on_a_later_page_is_updated(forge, server):
    for number in range(230):
        server.add("comment", f"text {number}", login="somebody")
    own = server.add("comment", f"{MARKER}\nold")
    forge.upsert_comment(5, MARKER, "new")
    assert own["body"] == f"{MARKER}\nnew"
    assert len(server.texts["comment"]) == 231


def test_comment_of_somebody_else_with_the_marker_is_left_alone(forge, server):
    pasted = server.add("comment", f"{MARKER}\nnot ours", login="somebody")
    forge.upsert_comment(5, MARKER, "ours")
    assert pasted["body"] == f"{MARKER}\nnot ours"
    assert [item["body"] for item in server.texts["comment"]][1:] == [f"{MARKER}\nours"]


def test_token_of_a_workflow_knows_its_comment_by_the_bot(server):
    server.login, server.user_type = None, "Bot"
    pasted = server.add("comment", f"{MARKER}\nnot ours", login="somebody")
    forge = forge_of(variables("github", server.url))
    forge.upsert_comment(5, MARKER, "one")
    forge.upsert_comment(5, MARKER, "two")
    assert [item["body"] for item in server.texts["comment"]] == [
        pasted["body"],
        f"{MARKER}\ntwo",
    ]


def test_comment_is_within_the_limit(forge, server):
    forge.upsert_comment(5, MARKER, "a line\n" * 20_000)
    (comment,) = server.texts["comment"]
    assert len(comment["body"]) <= MOST_CHARACTERS
    assert "cut at 65,000 characters" in comment["body"]


def test_issue_is_opened_updated_closed(forge, server):
    address = forge.upsert_issue(MARKER, "prod differs", "two places")
    assert forge.upsert_issue(MARKER, "prod differs still", "one place") == address
    (issue,) = server.texts["issue"]
    assert issue["title"] == "prod differs still"
    assert forge.close_issue(MARKER, "As deployed again.") == address
    assert issue["state"] == "closed"
    assert [item["body"] for item in server.texts["comment"]] == ["As deployed again."]
    assert forge.close_issue(MARKER, "As deployed again.") is None


def test_pull_request_with_the_marker_is_no_issue(server):
    server.add("issue", f"{MARKER}\ntext", pull_request={})
    assert forge_of(variables("github", server.url)).close_issue(MARKER, "x") is None


def test_pull_request_of_a_branch_is_opened_once_then_updated(forge, server):
    first = forge.open_pull_request("promote-prod", "main", "Promote prod", "one")
    assert forge.open_pull_request("promote-prod", "main", "Promote prod", "two") == first
    (pull,) = server.texts["pull"]
    assert "two" in (pull["body"], pull["description"])


def test_text_that_is_there_is_not_sent_again(forge, server):
    def write(title, text):
        forge.open_pull_request("promote-prod", "main", title, text)
        forge.upsert_issue(MARKER, title, text)
        forge.upsert_comment(1, MARKER, text)

    write("Promote prod", "one")
    del server.requests[:]
    write("Promote prod", "one")
    assert {method for method, _, _ in server.requests} == {"GET"}
    write("Promote prod to it", "one")
    changed = [path for method, path, _ in server.requests if method != "GET"]
    assert len(changed) == 2  # a comment has no title


def test_open_pull_requests_are_found_by_their_head(forge, server):
    for sha in ("a" * 40, "b" * 40, "a" * 40):
        server.add("pull", "", head={"sha": sha}, sha=sha)
    assert forge.pull_requests("a" * 40) == [1, 3]
    assert forge.pull_requests("c" * 40) == []


def test_workflow_is_started_with_its_inputs(forge, server):
    forge.dispatch_workflow("roundhouse.yml", "branch", {"environment": "dev"})
    ((path, body),) = server.dispatches
    if isinstance(forge, GitLab):
        assert path == "/projects/7/pipeline"
        assert body["variables"] == [
            {"key": "ROUNDHOUSE_WORKFLOW", "value": "roundhouse.yml"},
            {"key": "environment", "value": "dev"},
        ]
    else:
        assert path == f"/repos/{REPOSITORY}/actions/workflows/roundhouse.yml/dispatches"
        assert body == {"ref": "branch", "inputs": {"environment": "dev"}}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "No forge is named: set GITHUB_REPOSITORY"),
        ({"GITHUB_REPOSITORY": "a/b"}, "GITHUB_TOKEN or GH_TOKEN is not set"),
        ({"GITHUB_REPOSITORY": "../x", "GITHUB_TOKEN": "t"}, "must be owner/name"),
        ({"GITHUB_REPOSITORY": "a/b", "GH_TOKEN": "t\r\nX: y"}, "characters that no token has"),
        ({"CI_PROJECT_ID": "7"}, "GITLAB_TOKEN is not set"),
        ({**variables("github", "file:///etc")}, "is no address of a forge"),
    ],
)
def test_refuses_variables_that_name_no_forge(environ, message):
    with pytest.raises(NotReadyError, match=message):
        forge_of(environ)
