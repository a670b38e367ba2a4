"""GitHub, and GitHub Enterprise Server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from roundhouse.gitops.forge.rest import ForgeNotReadyError, RestApi, differs, field
from roundhouse.gitops.markdown import marked_body

VERSION = "2022-11-28"
RIGHTS = "`issues: write`, `pull-requests: write` or `actions: write` in this repository"


def github_api(url: str, token: str, token_name: str) -> RestApi:
    """Return the API of a GitHub at `url`, such as https://api.github.com."""
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": VERSION,
    }
    return RestApi(url=url, headers=headers, token_name=token_name, rights=RIGHTS)


@dataclass(frozen=True, kw_only=True)
class GitHub:
    """One repository, `owner/name`, on GitHub."""

    api: RestApi
    repository: str

    def pull_requests(self, head: str) -> list[int]:
        """Return the numbers of the open pull requests whose head is a commit, forks' too."""
        pulls = self.api.pages(f"{self._root}/pulls", state="open")
        return [
            int(field(item, "number"))
            for item in pulls
            if field(field(item, "head"), "sha") == head
        ]

    def upsert_comment(self, pull_request: int, marker: str, body: str) -> str:
        """Create or update the one comment that begins with the marker; return its address."""
        comments = f"{self._root}/issues/{pull_request}/comments"
        own = self._own(self.api.pages(comments), marker)
        content = {"body": marked_body(marker, body)}
        if own is None:
            return _address(self.api.send("POST", comments, content))
        if differs(own, content):
            self.api.send("PATCH", f"{self._root}/issues/comments/{field(own, 'id')}", content)
        return _address(own)

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the one open issue that begins with the marker; return its address."""
        content = {"title": title, "body": marked_body(marker, body)}
        own = self._issue(marker)
        if own is None:
            return _address(self.api.send("POST", f"{self._root}/issues", content))
        if differs(own, content):
            self.api.send("PATCH", f"{self._root}/issues/{field(own, 'number')}", content)
        return _address(own)

    def close_issue(self, marker: str, comment: str) -> str | None:
        """Close the open issue that begins with the marker; None: there is none."""
        own = self._issue(marker)
        if own is None:
            return None
        issue = f"{self._root}/issues/{field(own, 'number')}"
        self.api.send("PATCH", issue, {"state": "closed", "state_reason": "completed"})
        self.api.send("POST", f"{issue}/comments", {"body": comment})
        return _address(own)

    def open_pull_request(self, branch: str, base: str, title: str, body: str) -> str:
        """Open a pull request, or update the one that is open from the branch."""
        pulls = f"{self._root}/pulls"
        head = f"{self.repository.split('/')[0]}:{branch}"
        present = next(iter(self.api.pages(pulls, state="open", head=head, base=base)), None)
        content = {"title": title, "body": marked_body("", body)}
        if present is None:
            opened = self.api.send("POST", pulls, {**content, "head": branch, "base": base})
            return _address(opened)
        if differs(present, content):
            self.api.send("PATCH", f"{pulls}/{field(present, 'number')}", content)
        return _address(present)

    def dispatch_workflow(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow file, such as `roundhouse.yml`, on a branch."""
        path = f"{self._root}/actions/workflows/{quote(workflow, safe='')}/dispatches"
        self.api.send("POST", path, {"ref": ref, "inputs": dict(inputs)})

    @property
    def _root(self) -> str:
        return f"/repos/{quote(self.repository)}"

    def _issue(self, marker: str) -> Any:
        issues = self.api.pages(f"{self._root}/issues", state="open")
        return self._own((item for item in issues if "pull_request" not in item), marker)

    def _own(self, items: Iterable[Any], marker: str) -> Any:
        """Return the first item that begins with the marker and that this token's user wrote."""
        found = [item for item in items if str(item.get("body") or "").startswith(marker)]
        if not found:
            return None
        login = self._login()
        return next((item for item in found if _is_author(item.get("user") or {}, login)), None)

    def _login(self) -> str | None:
        """Return the login of the token's user; None for a token of a workflow or an app."""
        try:
            return str(field(self.api.send("GET", "/user"), "login"))
        except ForgeNotReadyError as error:
            if error.status != 403:
                raise
            return None


def _is_author(user: Mapping[str, Any], login: str | None) -> bool:
    """Return whether a user is the token's; a workflow's token is a bot's, never a person's."""
    return user.get("type") == "Bot" if login is None else user.get("login") == login


def _address(item: Any) -> str:
    return str(field(item, "html_url"))
