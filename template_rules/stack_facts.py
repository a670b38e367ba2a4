"""What an assembly's manifest says of a template, beyond the template."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StackFacts:
    """Name, account and region of a stack; None is unknown."""

    name: str | None = None
    account: str | None = None
    region: str | None = None
