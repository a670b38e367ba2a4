"""`roundhouse up` and `roundhouse down`: the local cloud."""

from __future__ import annotations

from typing import Annotated

import typer

UP_EXAMPLE = "roundhouse up --port 4566"
DOWN_EXAMPLE = "roundhouse down"


def up(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on 127.0.0.1; default: a free one.")
    ] = None,
) -> None:
    """Start the local cloud. Prints the lines that point the AWS tools at it.

    In the repository of a team that installed Roundhouse, the environments that it needs are made
    first, in .venvs.
    """
    from local_cloud import lifecycle
    from roundhouse.dev.environments import prepare_local_cloud
    from roundhouse.errors import NotReadyError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import start_local_cloud

    report, paths = open_report(), current_paths()
    prepare_local_cloud(paths)
    address = start_local_cloud(paths, report, port)
    if port is not None and address.port != port:
        raise NotReadyError(
            f"The local cloud runs on port {address.port} already; `roundhouse down` first, "
            f"to have it on {port}."
        )
    report.print("To point the AWS tools at it:")
    for name, value in lifecycle.environment(address).items():
        report.print(f"  export {name}={value}")
    if address.seconds_per_minute != 60:
        report.print(
            "A minute of waiting that AWS is asked for, such as a rollout's, takes "
            f"{address.seconds_per_minute:g} s here: ROUNDHOUSE_CLOUD_SECONDS_PER_MINUTE sets it."
        )


def down() -> None:
    """Stop the local cloud and remove exactly what it made."""
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import stop_local_cloud

    was_up = stop_local_cloud(current_paths())
    open_report().print(
        "The local cloud is stopped and removed." if was_up else "The local cloud was not up."
    )
