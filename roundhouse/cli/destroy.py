"""`roundhouse destroy`: one endpoint, or all of an environment, taken out of their account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Root

if TYPE_CHECKING:
    from roundhouse.paths import Paths
    from roundhouse.session import Session

EXAMPLE = "roundhouse destroy --env dev sentence-embedder"


def destroy(
    env: Env,
    endpoint: Annotated[
        str | None, typer.Argument(help="Its name in models/ or endpoints/; none: every endpoint.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the endpoint unasked.")] = False,
    confirm: Annotated[
        str | None,
        typer.Option(help="The environment's name, to delete every endpoint of it unasked."),
    ] = None,
    builds: Annotated[
        bool, typer.Option("--builds", help="With every endpoint: its builds' stacks too.")
    ] = False,
    root: Root = None,
) -> None:
    """Delete an endpoint, or all of them; engines stay.

    Instances, alarms, scaling, roles and dashboards go. The bucket with the engines, the key, the
    images and the locks stay, so that deploying again builds nothing.
    """
    from roundhouse.errors import UsageError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import open_session

    if endpoint is not None and (builds or confirm is not None):
        raise UsageError("--builds and --confirm are for a whole environment; name no endpoint.")
    if endpoint is None and yes:
        raise UsageError(
            f"--yes is for one endpoint; to delete every endpoint of {env} unasked, --confirm {env}"
        )
    paths = current_paths(root)
    session = open_session(paths, open_report(), env)
    if endpoint is None:
        destroy_environment(session, paths, confirm, builds=builds)
    else:
        _destroy_endpoint(session, endpoint, yes=yes)


def _destroy_endpoint(session: Session, endpoint: str, *, yes: bool) -> None:
    from onboarding.names import endpoint_name
    from roundhouse.deploy.destroy import deployed_endpoints
    from roundhouse.deploy.destroy import destroy as destroy_endpoint
    from roundhouse.errors import DeployFailedError

    report, name = session.report, endpoint_name(session.environment, endpoint)
    if endpoint in deployed_endpoints(session) and not yes:
        if not report.is_interactive:
            raise DeployFailedError(
                f"Refused: {name} would stop answering, and nobody can be asked, since standard "
                "input is no terminal; add --yes to delete it."
            )
        if not report.confirm(f"Delete endpoint {name}? It stops answering at once."):
            raise DeployFailedError("Nothing was deleted.")
    destroy_endpoint(session, endpoint)
    report.print(f"Deleted {name}.")
    if endpoint in {item.name for item in session.endpoint_deployments()}:
        report.print(
            f"Its file is still there: the next deployment makes it again, unless {endpoint} is "
            f"removed or left out of environments/{session.environment.name}.yaml (`models: "
            "except`)."
        )


def destroy_environment(
    session: Session, paths: Paths, confirm: str | None, *, builds: bool
) -> None:
    """Delete every endpoint of an environment once its name is typed, or given as `confirm`.

    Prints what stays. Raises DeployFailedError where nobody can be asked or the name is another.
    """
    from roundhouse.deploy.destroy import (
        delete_stacks,
        environment_stacks,
        kept_storage,
        require_received,
    )
    from roundhouse.errors import DeployFailedError
    from roundhouse.text import quantity

    report, name = session.report, session.environment.name
    require_received(paths, name)
    stacks = environment_stacks(session, builds=builds)
    if not stacks:
        report.print(f"Nothing to delete: {name} has no such stack.")
    else:
        for stack in stacks:
            report.print(f"  {stack.name}")
        if confirm is None and not report.is_interactive:
            raise DeployFailedError(
                f"Refused: every endpoint of {name} would stop answering, and nobody can be asked, "
                f"since standard input is no terminal; add --confirm {name} to delete them."
            )
        question = f"Delete these stacks? Endpoints stop answering at once. Type {name}:"
        answer = report.ask(question) if confirm is None else confirm
        if answer != name:
            raise DeployFailedError(f"Nothing was deleted: '{answer}' is not {name}.")
        delete_stacks(session, stacks)
        report.print(f"Deleted {quantity(len(stacks), 'stack')}.")
    report.print(f"Kept, and still paid for: {', '.join(kept_storage(session.environment))}.")
    report.print(f"`roundhouse deploy --env {name}` deploys it again and builds nothing.")
