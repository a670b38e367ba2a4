"""`roundhouse destroy`: one endpoint, taken out of its account."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root

EXAMPLE = "roundhouse destroy --env dev sentence-embedder"


def destroy(
    endpoint: Annotated[str, typer.Argument(help="Its name in models/ or endpoints/.")],
    env: Env,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it unasked.")] = False,
    root: Root = None,
) -> None:
    """Delete one endpoint's stack; its engines stay.

    Its instances, alarms, scaling and role go. Engines stay in the bucket and in the locks, so that
    deploying it again builds nothing.
    """
    from onboarding.names import endpoint_name
    from roundhouse.deploy.destroy import deployed_endpoints
    from roundhouse.deploy.destroy import destroy as destroy_endpoint
    from roundhouse.errors import DeployFailedError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import open_session

    report = open_report()
    session = open_session(current_paths(root), report, env)
    is_deployed = endpoint in deployed_endpoints(session)
    name = endpoint_name(session.environment, endpoint)
    if is_deployed and not yes:
        if not report.is_interactive:
            raise DeployFailedError(
                f"Refused: {name} would stop answering, and nobody can be asked, since standard "
                "input is no terminal; add --yes to delete it."
            )
        if not report.confirm(f"Delete endpoint {name}? It stops answering at once."):
            raise DeployFailedError("Nothing was deleted.")
    destroy_endpoint(session, endpoint)
    report.print(f"Deleted {name}.")
    if any(deployment.name == endpoint for deployment in session.deployments()):
        report.print(
            f"Its file is still there: the next deployment makes it again, unless {endpoint} is "
            f"removed or left out of environments/{env}.yaml (`models: except`)."
        )
