"""Issues, comments and labels of the REST API; a pull request is an issue too."""

from __future__ import annotations

from typing import Any

from tests.rehearsal.forge.records import Document, Event, Repository
from tests.rehearsal.forge.routes import Request, Response, Route, invalid, not_found

MOST_CHARACTERS = 65536
ISSUE = "/repos/{owner}/{repo}/issues/{issue_number}"


def new_issue(request: Request, repository: Repository, **fields: Any) -> Document:
    """Add an issue to a repository and return it."""
    number = len(repository.issues) + 1
    kind = "pull" if "pull_request" in fields else "issues"
    web = request.url.partition("/api/")[0]
    issue = {
        "id": next(request.store.ids),
        "number": number,
        "state": "open",
        "state_reason": None,
        "user": request.token.user.document(),
        "labels": [],
        "html_url": f"{web}/{repository.full_name}/{kind}/{number}",
        **fields,
    }
    repository.issues[number] = issue
    return issue


def start_on_pull(request: Request, action: str, pull: Document, **more: Any) -> None:
    """Start the workflows of what happened to a pull request."""
    repository, sender = request.repository, request.token.user
    branch = f"refs/heads/{repository.default_branch}"
    payload = {
        "action": action,
        "pull_request": pull,
        "number": pull["number"],
        "repository": repository.document(),
        "sender": sender.document(),
        **more,
    }
    merge = f"refs/pull/{pull['number']}/merge"
    refs = {
        "pull_request": merge if pull["state"] == "open" else branch,
        "pull_request_target": branch,
    }
    for kind, ref in refs.items():
        commit = repository.git.commit(ref)
        if commit is not None:
            event = Event(
                name=kind,
                repository=repository,
                payload=payload,
                sha=commit,
                ref=ref,
                actor=sender,
            )
            request.store.start_workflows(request.token, event)


def list_issues(request: Request) -> Response:
    state = request.query.get("state", "open")
    items = [i for i in request.repository.issues.values() if state in ("all", i["state"])]
    return Response(document=items[::-1])


def create_issue(request: Request) -> Response:
    body = str(request.body.get("body") or "")
    _require_length(body)
    issue = new_issue(request, request.repository, title=request.body["title"], body=body)
    return Response(status=201, document=issue)


def update_issue(request: Request) -> Response:
    issue = request.issue()
    _require_length(str(request.body.get("body") or ""))
    issue.update({key: request.body[key] for key in ("title", "body") if key in request.body})
    issue.update({k: request.body[k] for k in ("state", "state_reason") if k in request.body})
    return Response(document=issue)


def list_comments(request: Request) -> Response:
    number = request.issue()["number"]
    comments = request.repository.comments.values()
    return Response(document=[item for item in comments if item["issue_number"] == number])


def create_comment(request: Request) -> Response:
    issue, text = request.issue(), str(request.body["body"])
    _require_length(text)
    if not text.strip():
        raise invalid("body is blank")
    identifier = next(request.store.ids)
    comment = {
        "id": identifier,
        "body": text,
        "user": request.token.user.document(),
        "html_url": f"{issue['html_url']}#issuecomment-{identifier}",
        "issue_number": issue["number"],
    }
    request.repository.comments[identifier] = comment
    return Response(status=201, document=comment)


def update_comment(request: Request) -> Response:
    comment = request.repository.comments.get(request.number("comment_id"))
    if comment is None:
        raise not_found()
    _require_length(str(request.body["body"]))
    comment["body"] = request.body["body"]
    return Response(document=comment)


def add_labels(request: Request) -> Response:
    issue, names = request.issue(), list(request.body.get("labels", ()))
    present = {label["name"] for label in issue["labels"]}
    new = [{"name": str(name)} for name in names if name not in present]
    issue["labels"] += new
    for label in new if "pull_request" in issue else ():
        start_on_pull(request, "labeled", issue, label=label)
    return Response(document=issue["labels"])


def _require_length(body: str) -> None:
    if len(body) > MOST_CHARACTERS:
        raise invalid(f"body is too long (maximum is {MOST_CHARACTERS} characters)")


EITHER = ("issues", "pull-requests")
ROUTES = (
    Route("GET", "/repos/{owner}/{repo}/issues", list_issues, EITHER),
    Route("POST", "/repos/{owner}/{repo}/issues", create_issue, ("issues",)),
    Route("PATCH", ISSUE, update_issue, EITHER),
    Route("GET", f"{ISSUE}/comments", list_comments, EITHER),
    Route("POST", f"{ISSUE}/comments", create_comment, EITHER),
    Route("PATCH", "/repos/{owner}/{repo}/issues/comments/{comment_id}", update_comment, EITHER),
    Route("POST", f"{ISSUE}/labels", add_labels, EITHER),
)
