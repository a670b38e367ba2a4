"""What the process environment says about a build; read once, here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Facts that only the machine that starts a build knows."""

    source_commit: str | None = None
    image: str | None = None


def settings(environment: Mapping[str, str]) -> Settings:
    """The settings of a process environment; an empty variable counts as unset."""

    def value(*names: str) -> str | None:
        return next((environment[name] for name in names if environment.get(name)), None)

    return Settings(
        source_commit=value("ROUNDHOUSE_SOURCE_COMMIT"),
        image=value("ROUNDHOUSE_IMAGE", "CODEBUILD_BUILD_IMAGE"),
    )
