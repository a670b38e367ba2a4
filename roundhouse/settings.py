"""The process environment: the only place of the command that reads or changes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

QUIET: Mapping[str, str] = {
    "CDK_VALIDATION": "false",
    "CDK_DISABLE_VERSION_CHECK": "1",
    # Each call would start a process that reports it to AWS; that is for a user to turn on.
    "CDK_DISABLE_CLI_TELEMETRY": "true",
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
}
"""Keep cdk quick and quiet. What the user set wins."""


def inherited() -> dict[str, str]:
    """Return the environment that this process was started with."""
    return dict(os.environ)


def quieten_cdk() -> None:
    """Make the CDK in this process as quiet as in a process of its own.

    Ctrl-C ends Node as well: nobody reads what jsii tells it when this process ends.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    sys.unraisablehook = _report_but_broken_pipes


def _report_but_broken_pipes(found: sys.UnraisableHookArgs) -> None:
    if not isinstance(found.exc_value, BrokenPipeError):
        sys.__unraisablehook__(found)


def adopt_aws(variables: Mapping[str, str]) -> None:
    """Make every AWS client of this process use these variables, and no inherited AWS setting."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(
        {
            name: value
            for name, value in variables.items()
            if name.startswith("AWS_") or name.lower() == "no_proxy"
        }
    )
