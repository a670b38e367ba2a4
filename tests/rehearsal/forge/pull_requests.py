"""Pull requests of the REST API, over the repositories' own commits."""

from __future__ import annotations

from tests.rehearsal.forge.issues import new_issue, start_on_pull
from tests.rehearsal.forge.records import Document, Event, Repository, Token
from tests.rehearsal.forge.routes import RefusedError, Request, Response, Route, invalid

PULLS = "/repos/{owner}/{repo}/pulls"
PULL = f"{PULLS}/{{pull_number}}"


def list_pulls(request: Request) -> Response:
    query, state = request.query, request.query.get("state", "open")
    items = [
        item
        for item in request.repository.issues.values()
        if "pull_request" in item
        and state in ("all", item["state"])
        and query.get("base", item["base"]["ref"]) == item["base"]["ref"]
        and query.get("head", item["head"]["label"]) == item["head"]["label"]
    ]
    return Response(document=items[::-1])


def create_pull(request: Request) -> Response:
    base, body = request.repository, request.body
    owner, _, branch = str(body["head"]).rpartition(":")
    head = _head_repository(request, owner or base.owner.login)
    base_sha, head_sha = base.git.commit(f"refs/heads/{body['base']}"), None
    if head is not None:
        head_sha = head.git.commit(f"refs/heads/{branch}")
    if head is None or base_sha is None or head_sha is None:
        raise invalid("head or base is no branch")
    label = f"{head.owner.login}:{branch}"
    if any(item["head"]["label"] == label for item in base.open_pull_requests()):
        raise invalid(f"A pull request already exists for {label}")
    pull = new_issue(request, base, title=body["title"], body=body.get("body"), pull_request={})
    pull["head"] = {"ref": branch, "label": label, "repo": head.document()}
    pull["base"] = {"ref": body["base"], "label": str(body["base"]), "repo": base.document()}
    pull |= {"merged": False, "merge_commit_sha": None, "draft": bool(body.get("draft"))}
    refresh(base, head, pull)
    if pull["head"]["sha"] == base_sha:
        del base.issues[pull["number"]]
        raise invalid(f"No commits between {body['base']} and {branch}")
    start_on_pull(request, "opened", pull)
    return Response(status=201, document=pull)


def refresh(base: Repository, head: Repository, pull: Document) -> None:
    """Bring refs/pull/N/head and refs/pull/N/merge up to date with the branches."""
    number, branch = pull["number"], pull["head"]["ref"]
    base.git.fetch(head.git, f"refs/heads/{branch}", f"refs/pull/{number}/head")
    commits = [base.git.commit(ref) for ref in (f"refs/heads/{pull['base']['ref']}",
                                                f"refs/pull/{number}/head")]  # fmt: skip
    pull["base"]["sha"], pull["head"]["sha"] = commits
    merge = base.git.merge(str(commits[0]), str(commits[1]), f"Merge {commits[1]}")
    pull["mergeable"], pull["merge_commit_sha"] = merge is not None, merge
    if merge is not None:
        base.git.run("update-ref", f"refs/pull/{number}/merge", merge)


def update_pull(request: Request) -> Response:
    pull, body = request.pull_request(), request.body
    pull.update({key: body[key] for key in ("title", "body", "state") if key in body})
    return Response(document=pull)


def list_files(request: Request) -> Response:
    pull = request.pull_request()
    changed = request.repository.git.changed_files(pull["base"]["sha"], pull["head"]["sha"])
    return Response(document=[{"filename": path} for path in changed])


def merge_pull(request: Request) -> Response:
    pull, repository = request.pull_request(), request.repository
    if pull["merged"] or pull["state"] != "open" or not pull["mergeable"]:
        raise RefusedError(405, "Pull Request is not mergeable")
    if request.body.get("sha", pull["head"]["sha"]) != pull["head"]["sha"]:
        raise RefusedError(409, "Head branch was modified. Review and try the merge again.")
    branch, before = f"refs/heads/{pull['base']['ref']}", pull["base"]["sha"]
    title = request.body.get("commit_title") or f"Merge pull request #{pull['number']}"
    commit = repository.git.merge(before, pull["head"]["sha"], title)
    repository.git.run("update-ref", branch, str(commit), before)
    pull |= {"merged": True, "state": "closed", "merge_commit_sha": commit}
    start_on_pull(request, "closed", pull)
    push(request, repository, pull["base"]["ref"], before, str(commit))
    return Response(document={"merged": True, "sha": commit, "message": "Pull Request merged"})


def push(
    request: Request, repository: Repository, branch: str, before: str | None, after: str
) -> None:
    """Start what follows a branch's new commit: pushes, and the pull requests from it or to it."""
    store, token = request.store, request.token
    ref, sender = f"refs/heads/{branch}", token.user
    payload = {
        "ref": ref,
        "before": before or "0" * 40,
        "after": after,
        "repository": repository.document(),
        "sender": sender.document(),
    }
    event = Event(
        name="push", repository=repository, payload=payload, sha=after, ref=ref, actor=sender
    )
    store.start_workflows(token, event)
    label = f"{repository.owner.login}:{branch}"
    for base in (repository, repository.parent):
        for pull in () if base is None else list(base.open_pull_requests()):
            is_head = pull["head"]["label"] == label
            if is_head or (base is repository and pull["base"]["ref"] == branch):
                _update(request, token, base, pull, is_head=is_head)


def _update(
    request: Request, token: Token, base: Repository | None, pull: Document, *, is_head: bool
) -> None:
    head = request.store.repositories[pull["head"]["repo"]["full_name"]]
    if base is None:
        return
    refresh(base, head, pull)
    if is_head:
        path = {"owner": base.owner.login, "repo": base.name}
        own = Request(store=request.store, token=token, url=request.url, path=path)
        start_on_pull(own, "synchronize", pull)


def _head_repository(request: Request, owner: str) -> Repository | None:
    base = request.repository
    if owner == base.owner.login:
        return base
    forks = [r for r in request.store.repositories.values() if r.parent is base]
    return next((fork for fork in forks if fork.owner.login == owner), None)


WRITES = ("pull-requests",)
ROUTES = (
    Route("GET", PULLS, list_pulls, WRITES),
    Route("POST", PULLS, create_pull, WRITES),
    Route("PATCH", PULL, update_pull, WRITES),
    Route("GET", f"{PULL}/files", list_files, WRITES),
    Route("PUT", f"{PULL}/merge", merge_pull, ("contents",)),
)
