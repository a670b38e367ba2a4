"""The forge itself: what people and workflows do, and the events that follow."""

from __future__ import annotations

import copy
import itertools
import secrets
import threading
from pathlib import Path
from typing import Any

from tests.rehearsal.forge.git import BareRepository
from tests.rehearsal.forge.records import (
    ACTIONS,
    WORKFLOWS,
    Document,
    Event,
    RefusedError,
    Repository,
    Run,
    Token,
    User,
)

FIRST_USER, FIRST_REPOSITORY, FIRST_NUMBER = 123456, 456789, 1001
MOST_CHARACTERS = 65536
MAIN = "refs/heads/main"


class Forge:
    """Keeps its repositories in `folder`, and everything else in memory; `lock` guards it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, ""
        self.repositories: dict[str, Repository] = {}
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.runs: dict[int, Run] = {}
        self.events: list[Event] = []
        self.lock = threading.Condition()
        self.ids = itertools.count(FIRST_NUMBER)

    def add_user(self, login: str) -> str:
        """Add a person and return a token of theirs."""
        user = User(login=login, id=FIRST_USER + len(self.users))
        self.users[login] = user
        return self._add_token(Token(user=user))

    def add_repository(self, owner: str, name: str, parent: str | None = None) -> Repository:
        """Add an empty repository, or a fork with the branches of its parent."""
        git = BareRepository.create(self.folder / owner / f"{name}.git")
        repository = Repository(
            owner=self.users[owner],
            name=name,
            id=FIRST_REPOSITORY + len(self.repositories),
            git=git,
            parent=None if parent is None else self.repositories[parent],
        )
        if repository.parent is not None:
            git.fetch(repository.parent.git, "refs/heads/*", "refs/heads/*")
        self.repositories[repository.full_name] = repository
        return repository

    def add_run(self, **fields: Any) -> tuple[Run, str]:
        """Add a workflow run and return it with its token, which acts as GitHub's own bot."""
        run = Run(id=next(self.ids), **fields)
        self.runs[run.id] = run
        return run, self._add_token(Token(user=ACTIONS, run=run))

    def _add_token(self, token: Token) -> str:
        value = f"ghs_{secrets.token_hex(16)}"
        self.tokens[value] = token
        return value

    # Issues, comments and pull requests, which are issues too

    def add_issue(
        self, token: Token, repository: Repository, title: str, body: str, **fields: Any
    ) -> Document:
        """Open an issue and return it."""
        require_length(body)
        number = len(repository.issues) + 1
        issue = {
            "number": number,
            "title": title,
            "body": body,
            "state": "open",
            "user": token.user.document(),
            **fields,
        }
        repository.issues[number] = issue
        return issue

    def add_comment(
        self, token: Token, repository: Repository, issue: Document, body: str
    ) -> Document:
        """Comment on an issue or pull request."""
        require_length(body)
        if not body.strip():
            raise RefusedError(422, "body is blank")
        identifier = next(self.ids)
        comment = {
            "id": identifier,
            "body": body,
            "user": token.user.document(),
            "issue_number": issue["number"],
        }
        repository.comments[identifier] = comment
        return comment

    def create_pull(
        self, token: Token, base: Repository, head: str, title: str, body: str = ""
    ) -> Document:
        """Open a pull request to main from `branch`, or `owner:branch` of a fork."""
        owner, _, branch = head.rpartition(":")
        label = f"{owner or base.owner.login}:{branch}"
        source = base
        if owner not in ("", base.owner.login):
            forks = (item for item in self.repositories.values() if item.parent is base)
            source = next(fork for fork in forks if fork.owner.login == owner)
        if source.git.commit(f"refs/heads/{branch}") in (None, base.git.commit(MAIN)):
            raise RefusedError(422, f"{branch} is no branch, or has no commits above main")
        if any(item["head"]["label"] == label for item in base.open_pulls()):
            raise RefusedError(422, f"A pull request already exists for {label}")
        pull = self.add_issue(token, base, title, body, pull_request={})
        pull["head"] = {"ref": branch, "label": label, "repo": source.document()}
        pull["base"] = {"ref": "main", "label": "main", "repo": base.document()}
        self.refresh(base, pull)
        self.start_on_pull(token, base, "opened", pull)
        return pull

    def refresh(self, base: Repository, pull: Document) -> None:
        """Bring refs/pull/N/head and refs/pull/N/merge up to date with the branches."""
        number = pull["number"]
        head = self.repositories[pull["head"]["repo"]["full_name"]]
        refs = f"refs/pull/{number}/head", f"refs/pull/{number}/merge"
        base.git.fetch(head.git, f"refs/heads/{pull['head']['ref']}", refs[0])
        pull["base"]["sha"], pull["head"]["sha"] = map(base.git.commit, (MAIN, refs[0]))
        text = f"Merge {pull['head']['sha']}"
        merge = base.git.merge(pull["base"]["sha"], pull["head"]["sha"], text)
        pull["mergeable"] = merge is not None
        if merge is not None:
            base.git.run("update-ref", refs[1], merge)

    def label(self, token: Token, repository: Repository, pull: Document, name: str) -> None:
        """Give a pull request a label."""
        self.start_on_pull(token, repository, "labeled", pull, label={"name": name})

    def merge(self, token: Token, repository: Repository, pull: Document) -> str:
        """Merge a pull request and return the merge commit."""
        assert pull["state"] == "open" and pull["mergeable"], pull
        before, title = pull["base"]["sha"], f"Merge pull request #{pull['number']}"
        commit = str(repository.git.merge(before, pull["head"]["sha"], title))
        repository.git.run("update-ref", MAIN, commit, before)
        pull["state"] = "closed"
        self.start_on_pull(token, repository, "closed", pull)
        self.pushed(token, repository, "main", before, commit)
        return commit

    # What starts workflows

    def start(
        self, token: Token, name: str, repository: Repository, sha: str, ref: str, /, **payload: Any
    ) -> None:
        """Keep an event. What a run's own token does starts nothing, dispatches apart."""
        if token.run is not None and name != "workflow_dispatch":
            return
        payload |= {"repository": repository.document(), "sender": token.user.document()}
        event = Event(
            name=name,
            repository=repository,
            payload=copy.deepcopy(payload),
            sha=sha,
            ref=ref,
            actor=token.user,
        )
        with self.lock:
            self.events.append(event)
            self.lock.notify_all()

    def start_on_pull(
        self, token: Token, repository: Repository, action: str, pull: Document, **more: Any
    ) -> None:
        """Start the workflows of what happened to a pull request."""
        merge = f"refs/pull/{pull['number']}/merge"
        refs = {
            "pull_request": merge if pull["state"] == "open" else MAIN,
            "pull_request_target": MAIN,
        }
        for kind, ref in refs.items():
            commit = repository.git.commit(ref)
            if commit is not None:
                shown = {"action": action, "number": pull["number"], "pull_request": pull, **more}
                self.start(token, kind, repository, commit, ref, **shown)

    def pushed(
        self, token: Token, repository: Repository, branch: str, before: str | None, after: str
    ) -> None:
        """Start what follows a branch's commit: pushes, and the pull requests from it or to it."""
        ref, label = f"refs/heads/{branch}", f"{repository.owner.login}:{branch}"
        shown = {"ref": ref, "before": before or "0" * 40, "after": after}
        self.start(token, "push", repository, after, ref, **shown)
        for base in filter(None, (repository, repository.parent)):
            for pull in list(base.open_pulls()):
                is_head = pull["head"]["label"] == label
                if is_head or (base is repository and pull["base"]["ref"] == branch):
                    self.refresh(base, pull)
                if is_head:
                    self.start_on_pull(token, base, "synchronize", pull)

    def dispatch(
        self, token: Token, repository: Repository, file: str, ref: str, inputs: Document
    ) -> None:
        """Start a workflow by hand, on a branch. Raises RefusedError."""
        path, branch = f"{WORKFLOWS}/{file}", f"refs/heads/{ref.removeprefix('refs/heads/')}"
        commit = repository.git.commit(branch)
        if commit is None or repository.git.text(MAIN, path) is None:
            raise RefusedError(422, f"No ref found for: {ref}, or no workflow {file}")
        trigger = repository.triggers(commit, path).get("workflow_dispatch")
        if trigger is None:
            raise RefusedError(422, "Workflow does not have 'workflow_dispatch' trigger")
        known = trigger.get("inputs", {})
        required = {name for name, spec in known.items() if spec.get("required") == "true"}
        if not required <= inputs.keys() <= known.keys():
            raise RefusedError(422, f"Inputs {sorted(inputs)}; known {sorted(known)}")
        given = {name: spec.get("default", "") for name, spec in known.items()} | inputs
        shown = {"inputs": given, "ref": branch, "workflow": path}
        self.start(token, "workflow_dispatch", repository, commit, branch, **shown)

    def approve(self, login: str) -> int:
        """Approve, as a reviewer, every deployment that waits; return how many."""
        with self.lock:
            waiting = [run for run in self.runs.values() if run.status == "in_progress"]
            count = 0
            for run in waiting:
                name = run.waits_for
                if name is not None and login in run.repository.reviewers[name]:
                    run.approvals.add(name)
                    count += 1
            self.lock.notify_all()
        return count


def require_length(body: str) -> None:
    """Raise RefusedError for a text that GitHub does not take."""
    if len(body) > MOST_CHARACTERS:
        raise RefusedError(422, f"body is too long (maximum is {MOST_CHARACTERS} characters)")
