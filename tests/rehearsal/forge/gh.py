"""GitHub's command line: the commands and flags that the workflows use, and no others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rehearsal.forge.forge import Forge, require_length
from tests.rehearsal.forge.records import (
    NOT_FOUND,
    WRITE,
    Document,
    RefusedError,
    Repository,
    Token,
)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who gives a command about a repository; the files that it names are in `folder`."""

    forge: Forge
    token: Token
    repository: Repository
    folder: Path

    def require(self, level: str, permissions: Sequence[str]) -> None:
        """Raise RefusedError where the token has none of the permissions."""
        if not any(self.token.may(self.repository, name, level) for name in permissions):
            raise RefusedError(403, "Resource not accessible by integration")

    def issue(self, number: str) -> Document:
        return find(self.repository.issues, number)

    def pr_list(self, given: argparse.Namespace) -> list[Document]:
        own = self.repository.full_name
        return [
            {
                "number": pull["number"],
                "headRefOid": pull["head"]["sha"],
                "isCrossRepository": pull["head"]["repo"]["full_name"] != own,
            }
            for pull in [*self.repository.open_pulls()][::-1]
            if given.head in (None, pull["head"]["ref"])
            and given.base in (None, pull["base"]["ref"])
        ]

    def pr_create(self, given: argparse.Namespace) -> None:
        text = (self.folder / given.body_file).read_text()
        self.forge.create_pull(self.token, self.repository, given.head, given.title, text)

    def pr_comment(self, given: argparse.Namespace) -> None:
        text, issue = (self.folder / given.body_file).read_text(), self.issue(given.number)
        self.forge.add_comment(self.token, self.repository, issue, text)

    def issue_list(self, given: argparse.Namespace) -> list[Document]:
        return [
            {
                "number": issue["number"],
                "title": issue["title"],
                "author": {"is_bot": issue["user"]["type"] == "Bot"},
            }
            for issue in [*self.repository.issues.values()][::-1]
            if "pull_request" not in issue and issue["state"] == "open"
        ]

    def issue_create(self, given: argparse.Namespace) -> None:
        text = (self.folder / given.body_file).read_text()
        self.forge.add_issue(self.token, self.repository, given.title, text)

    def issue_close(self, given: argparse.Namespace) -> None:
        issue = self.issue(given.number)
        self.forge.add_comment(self.token, self.repository, issue, given.comment)
        issue["state"] = "closed"

    def workflow_run(self, given: argparse.Namespace) -> None:
        self.forge.dispatch(self.token, self.repository, given.workflow, given.ref, {})

    def api(self, given: argparse.Namespace) -> list[Document] | None:
        """Read the comments of an issue, or change a comment, an issue or a pull request."""
        path = re.fullmatch(r"repos/\{owner\}/\{repo\}/(.+?)/(\d+)(/comments)?", given.path)
        if path is None or (given.method == "GET") != (path[3] is not None):
            raise NOT_FOUND
        kind, number = path[1], path[2]
        if given.method == "GET":
            self.require("read", EITHER)
            return self.repository.comments_of(self.issue(number)["number"])
        self.require(WRITE, PULLS if kind == "pulls" else EITHER)
        is_comment = kind == "issues/comments"
        record = find(self.repository.comments, number) if is_comment else self.issue(number)
        changes = dict(field.split("=", 1) for field in given.field)
        for name, value in changes.items():
            changes[name] = (self.folder / value.removeprefix("@")).read_text()
        changes |= dict(field.split("=", 1) for field in given.raw_field)
        require_length(changes.get("body", ""))
        record.update(changes)
        return None


def find(records: dict[int, Document], number: str) -> Document:
    if int(number) not in records:
        raise NOT_FOUND
    return records[int(number)]


EITHER, PULLS, ISSUES = ("issues", "pull-requests"), ("pull-requests",), ("issues",)
LIST, TEXT = ("--state", "--json", "--jq"), ("--title", "--body-file")
Act = Callable[[Caller, argparse.Namespace], Any]
COMMANDS: dict[str, tuple[Act, str, tuple[str, ...], tuple[str, ...]]] = {
    "pr list": (Caller.pr_list, "read", PULLS, LIST),
    "pr create": (Caller.pr_create, WRITE, PULLS, ("--base", "--head", *TEXT)),
    "pr comment": (Caller.pr_comment, WRITE, EITHER, ("number", "--body-file")),
    "issue list": (Caller.issue_list, "read", EITHER, LIST),
    "issue create": (Caller.issue_create, WRITE, ISSUES, TEXT),
    "issue close": (Caller.issue_close, WRITE, EITHER, ("number", "--comment")),
    "workflow run": (Caller.workflow_run, WRITE, ("actions",), ("workflow", "--ref")),
}
"""What a command does, the level and permissions of which its token needs one, and its words."""


class Parser(argparse.ArgumentParser):
    """Refuses words that no workflow uses."""

    def error(self, message: str) -> Any:
        raise RefusedError(422, message)


def new_parser() -> Parser:
    parser = Parser(prog="gh", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, (_, _, _, words) in COMMANDS.items():
        command = commands.add_parser(name, allow_abbrev=False)
        for word in words:
            command.add_argument(word, **({"required": True} if word.startswith("-") else {}))
        if name.endswith("list"):
            command.add_argument("--limit", type=int, default=30)
        if name == "pr list":
            command.add_argument("--head")
            command.add_argument("--base")
    api = commands.add_parser("api", allow_abbrev=False)
    api.add_argument("path")
    for flag in ("--paginate", "--silent"):
        api.add_argument(flag, action="store_true")
    for flag in ("--field", "--raw-field"):
        api.add_argument(flag, action="append", default=[])
    api.add_argument("--method", choices=("GET", "PATCH"), default="GET")
    api.add_argument("--jq")
    return parser


def run_gh(caller: Caller, words: Sequence[str]) -> Document:
    """Run a command; return `items`, and the expression `jq` that selects what is printed of them.

    Nothing is printed where `jq` is None.
    """
    length = 1 if words[0] == "api" else 2
    given = new_parser().parse_args([" ".join(words[:length]), *words[length:]])
    if given.command == "api":
        return {"items": caller.api(given), "jq": given.jq}
    act, level, permissions, _ = COMMANDS[given.command]
    caller.require(level, permissions)
    items = act(caller, given)
    if items is None:
        return {"items": None, "jq": None}
    fields = given.json.split(",")
    shown = [{name: item[name] for name in fields} for item in items[: given.limit]]
    return {"items": shown, "jq": given.jq}
