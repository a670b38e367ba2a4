"""Why a build ends without an engine.

One class per exit code, each message one sentence for the user.

BuildError
├── InputRefused    1  files, arguments, datasets or this machine cannot give the engine asked for
├── BudgetMissed    3  no engine of the requested precision is accurate enough
├── NetworkRefused  4  the compile check or the compiler refuses the network
├── SourceFault     5  the source cannot be fetched, read or exported faithfully
│   └── NothingForInt8  no layer can be INT8; `auto` takes another precision
└── PublishFailed   6  the store cannot be read or written; no engine became visible
"""

from __future__ import annotations


class BuildError(Exception):
    """The build ends; the message is the reason."""

    exit_code = 1


class InputRefused(BuildError):
    exit_code = 1


class BudgetMissed(BuildError):
    exit_code = 3


class NetworkRefused(BuildError):
    exit_code = 4


class SourceFault(BuildError):
    exit_code = 5


class NothingForInt8(SourceFault):
    pass


class PublishFailed(BuildError):
    exit_code = 6


def one_line(error: object, longest: int = 300) -> str:
    """Return an error of another library on one line, cut at `longest` characters."""
    return " ".join(str(error).split())[:longest]
