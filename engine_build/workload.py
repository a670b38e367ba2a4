"""What every build has, of whatever kind: its tools, and how it is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from engine_build.log import Log
from engine_build.runner import Runner
from engine_build.settings import Settings
from engine_build.store import Store
from engine_build.work_folder import WorkFolder

Status = Literal["known", "built", "candidate"]
VERBS: dict[Status, str] = {
    "known": "is there already",
    "built": "is built",
    "candidate": "is built, and published once it is signed",
}
"""What is said of an engine or a checkpoint, by the status of its build."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """One build's tools."""

    settings: Settings
    log: Log
    runner: Runner
    work: WorkFolder
    publish_to: Store | None
    candidate: str | None
    """The candidate that is published; None: what is built is published at once, unsigned."""

    @property
    def new_status(self) -> Status:
        """The status of what this build builds."""
        return "built" if self.candidate is None else "candidate"


class Answer(NamedTuple):
    """The result of a build: fields for JSON, and a sentence."""

    fields: dict[str, Any]
    text: str


class Workload(Protocol):
    """What is built: an engine, or a checkpoint of a text generator."""

    @property
    def region(self) -> str:
        """The AWS region of the environment."""
        ...

    def build(self, tools: Tools) -> Answer:
        """Build, judge and publish what is missing. Raises BuildError."""
        ...
