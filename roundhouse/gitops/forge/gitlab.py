"""GitLab; a pull request is a merge request there, and a workflow a pipeline with variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from roundhouse.gitops.forge.rest import RestApi, differs, field
from roundhouse.gitops.markdown import marked_body

RIGHTS = "scope `api` and the role Developer in this project"
WORKFLOW_VARIABLE = "ROUNDHOUSE_WORKFLOW"


def gitlab_api(url: str, token: str, token_name: str) -> RestApi:
    """Return the API of a GitLab at `url`, such as https://gitlab.com/api/v4."""
    return RestApi(url=url, headers={"PRIVATE-TOKEN": token}, token_name=token_name, rights=RIGHTS)


@dataclass(frozen=True, kw_only=True)
class GitLab:
    """One project on GitLab, by its number or its path."""

    api: RestApi
    project: str

    def pull_requests(self, head: str) -> list[int]:
        """Return the numbers of the open merge requests whose head is a commit, forks' too."""
        found = self.api.pages(f"{self._root}/merge_requests", state="opened")
        return [int(field(item, "iid")) for item in found if item.get("sha") == head]

    def upsert_comment(self, pull_request: int, marker: str, body: str) -> str:
        """Create or update the one note that begins with the marker; return its address."""
        request = f"{self._root}/merge_requests/{pull_request}"
        notes = self.api.pages(f"{request}/notes", sort="asc", order_by="created_at")
        own = self._own((note for note in notes if not note.get("system")), marker, "body")
        content = {"body": marked_body(marker, body)}
        if own is None:
            own = self.api.send("POST", f"{request}/notes", content)
        elif differs(own, content):
            self.api.send("PUT", f"{request}/notes/{field(own, 'id')}", content)
        return f"{_address(self.api.send('GET', request))}#note_{field(own, 'id')}"

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the one open issue that begins with the marker; return its address."""
        content = {"title": title, "description": marked_body(marker, body)}
        own = self._issue(marker)
        if own is None:
            return _address(self.api.send("POST", f"{self._root}/issues", content))
        if differs(own, content):
            self.api.send("PUT", f"{self._root}/issues/{field(own, 'iid')}", content)
        return _address(own)

    def close_issue(self, marker: str, comment: str) -> str | None:
        """Close the open issue that begins with the marker; None: there is none."""
        own = self._issue(marker)
        if own is None:
            return None
        issue = f"{self._root}/issues/{field(own, 'iid')}"
        self.api.send("PUT", issue, {"state_event": "close"})
        self.api.send("POST", f"{issue}/notes", {"body": comment})
        return _address(own)

    def open_pull_request(self, branch: str, base: str, title: str, body: str) -> str:
        """Open a merge request, or update the one that is open from the branch."""
        requests = f"{self._root}/merge_requests"
        query = {"state": "opened", "source_branch": branch, "target_branch": base}
        present = next(iter(self.api.pages(requests, **query)), None)
        content = {"title": title, "description": marked_body("", body)}
        if present is None:
            branches = {"source_branch": branch, "target_branch": base}
            return _address(self.api.send("POST", requests, {**content, **branches}))
        if differs(present, content):
            self.api.send("PUT", f"{requests}/{field(present, 'iid')}", content)
        return _address(present)

    def dispatch_workflow(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> None:
        """Start a pipeline on a branch; its variables are the inputs and ROUNDHOUSE_WORKFLOW."""
        values = {WORKFLOW_VARIABLE: workflow, **inputs}
        variables = [{"key": key, "value": value} for key, value in values.items()]
        self.api.send("POST", f"{self._root}/pipeline", {"ref": ref, "variables": variables})

    @property
    def _root(self) -> str:
        return f"/projects/{quote(self.project, safe='')}"

    def _issue(self, marker: str) -> Any:
        issues = self.api.pages(f"{self._root}/issues", state="opened", scope="all")
        return self._own(issues, marker, "description")

    def _own(self, items: Iterable[Any], marker: str, text: str) -> Any:
        """Return the first item that begins with the marker and that this token's user wrote."""
        found = [item for item in items if str(item.get(text) or "").startswith(marker)]
        if not found:
            return None
        user = field(self.api.send("GET", "/user"), "id")
        return next((item for item in found if (item.get("author") or {}).get("id") == user), None)


def _address(item: Any) -> str:
    return str(field(item, "web_url"))
