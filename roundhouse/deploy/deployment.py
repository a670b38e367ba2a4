"""The deployment of an environment: stacks that builds need, images, engines, checks, endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from onboarding.deployment import DeployedEndpoint
from onboarding.lock import BuiltEntry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.deploy import cdk, images
from roundhouse.deploy.builds import engines
from roundhouse.deploy.builds.requests import EnginesNotBuiltError
from roundhouse.deploy.builds.source import (
    publish_adapters,
    require_committed_sources,
)
from roundhouse.deploy.cdk import StackArtifact, stack_artifacts
from roundhouse.deploy.endpoint_steps import (
    require_live_component,
    require_live_config,
    restore_held_resources,
    retention_parameters,
    take_first_steps,
)
from roundhouse.deploy.permissions import Confirm, added_permissions, require_approval
from roundhouse.deploy.quotas import require_quotas
from roundhouse.deploy.stacks import Template, deployed_templates, require_updatable_stacks
from roundhouse.deploy.verification import verify
from roundhouse.errors import RoundhouseError
from roundhouse.session import Session
from roundhouse.text import quantity

EARLY_STACKS = ("*/Foundation", "*/Images", "*/Builds")
EARLY_CONCURRENCY = 4
SHOWN_FAULTS = 20


@dataclass(frozen=True, kw_only=True)
class DeployOptions:
    """What a deployment may do without asking.

    `yes`: added permissions need no approval, else `confirm` asks (None: nobody can be asked).
    `concurrency`: endpoints that update at the same time. `rebuild_gone`: build an engine again
    whose lock names an archive that is gone. `allow_dirty`: build from uncommitted files.
    `before_building` gets the models whose engines are missing, `before_deploying` the deployed and
    the wanted template of every stack, by name; both may raise to refuse.
    """

    yes: bool = False
    confirm: Confirm | None = None
    concurrency: int = 1
    rebuild_gone: bool = False
    allow_dirty: bool = False
    before_building: Callable[[Sequence[str]], None] = lambda models: None
    before_deploying: Callable[[Mapping[str, Template], Mapping[str, Template]], None] = (
        lambda before, after: None
    )


@dataclass(frozen=True, kw_only=True)
class DeployResult:
    """What one deployment did; `images`: those that were built and pushed."""

    built: tuple[BuiltEntry, ...]
    verified: int
    deployed: cdk.Deployed
    images: tuple[str, ...] = ()


def deploy(
    session: Session, options: DeployOptions, *, before_builds: Callable[[], object] = lambda: None
) -> DeployResult:
    """Deploy the session's endpoints, building what is missing first.

    What an interrupted deployment left done is used. An endpoint whose engine cannot be built
    stays as it is; those that lack none are deployed before EnginesNotBuiltError is raised.

    `before_builds` is called once the machine is about to be busy with builds.
    """
    if session.is_local:
        with session.report.step("cdk bootstrap") as step:
            step.finish("done" if cdk.bootstrap(session) else "is there already")
        session.report.print(
            "– No image is built in the local cloud: environments of this machine stand for them"
        )
    require_updatable_stacks(session)
    images.require_pinned_images(session)
    requests, image_orders = engines.missing_builds(session), images.missing(session)
    options.before_building([request.model for request in requests])
    require_quotas(session, requests)
    if requests:
        require_committed_sources(session, allow_dirty=options.allow_dirty)
    if requests or image_orders:
        deploy_early_stacks(session, options)
    images.build_images(session, image_orders)
    built: tuple[BuiltEntry, ...] = ()
    if requests:
        before_builds()
        buildable = [item for item in requests if options.rebuild_gone or not item.is_locked]
        try:
            built = engines.build_all(session, buildable, allow_dirty=options.allow_dirty)
        except EnginesNotBuiltError as error:
            _deploy_complete_endpoints(session, options, error)
            raise
    else:
        session.report.print("✓ Nothing to build: every engine is in its lock and in S3")
    endpoints = session.endpoint_deployments()
    verified = verify(session, endpoints)
    deployed = _deploy_endpoints(session, options, endpoints, cdk.ALL)
    return DeployResult(
        built=built,
        verified=verified,
        deployed=deployed,
        images=tuple(order.image for order in image_orders),
    )


def construct_path(deployment: DeployedEndpoint) -> str:
    """Return the pattern of an endpoint's stack for the cdk command line."""
    return f"*/Endpoint-{deployment.name}"


def check_templates(session: Session, folder: Path, artifacts: Mapping[str, StackArtifact]) -> None:
    """Raise RoundhouseError for errors that the template rules find in these stacks.

    Stacks that a team adds in its app.py are its own: CDK's rules judge them.
    """
    import template_rules
    from onboarding.names import stack_name

    ours = stack_name(session.environment, "")
    files = {item.file.name for name, item in artifacts.items() if name.startswith(ours)}
    with session.report.step("Checking the templates") as step:
        findings = template_rules.check(folder, only=files)
        errors = [finding for finding in findings if finding.severity == "error"]
        warnings = len(findings) - len(errors)
        step.finish(f"{quantity(len(files), 'stack')}, {quantity(warnings, 'warning')}")
    if errors:
        lines = [f"  {finding}" for finding in errors[:SHOWN_FAULTS]]
        more = len(errors) - len(lines)
        if more:
            lines.append(f"  and {more} more")
        raise RoundhouseError(
            f"Refused before deploying: {quantity(len(errors), 'error')} in the templates; nothing "
            "was changed.\n" + "\n".join(lines)
        )


def deploy_early_stacks(session: Session, options: DeployOptions) -> None:
    """Deploy the stacks that builds need.

    The endpoints that lack no engine and no checkpoint are checked too, so that their faults end
    the deployment before anything changes.
    """
    patterns = (*EARLY_STACKS, *map(construct_path, _complete_endpoints(session)))
    folder = _synthesise(session, patterns)
    _checked_assembly(session, options, folder, patterns)
    with session.report.step("Deploying the foundation and the builds (cdk deploy)") as step:
        deployed = cdk.deploy(
            session,
            folder,
            EARLY_STACKS,
            concurrency=EARLY_CONCURRENCY,
            on_line=lambda line: cdk.show_line(step, line),
        )
        step.finish(deployed.summary)


def _deploy_complete_endpoints(
    session: Session, options: DeployOptions, failure: EnginesNotBuiltError
) -> None:
    """Deploy the endpoints that lack no engine, and name those that stay as they were.

    A failure of theirs is printed beside the builds' own.
    """
    deployments, complete = session.deployments(), _complete_endpoints(session)
    left = [deployment for deployment in deployments if deployment.missing]
    failed = {failed.engine_key for failed in failure.failures}
    for deployment in left:
        models = ", ".join(
            target.model.name for target in deployment.missing if target.engine_key in failed
        )
        because = f"no engine of {models}" if models else "an engine is missing"
        failure.add_note(f"Endpoint {deployment.name} stays as it was: {because}.")
    if not complete:
        return
    try:
        verify(session, complete)
        _deploy_endpoints(session, options, complete, tuple(map(construct_path, complete)))
    except RoundhouseError as error:
        session.report.print(str(error))


def _complete_endpoints(session: Session) -> list[DeployedEndpoint]:
    """Return the endpoints that lack no engine and no checkpoint."""
    return [item for item in session.endpoint_deployments() if item.is_built]


def _deploy_endpoints(
    session: Session,
    options: DeployOptions,
    deployments: Sequence[DeployedEndpoint],
    patterns: tuple[str, ...],
) -> cdk.Deployed:
    """Deploy endpoints, each by as many updates as its change takes.

    After a failure no endpoint is left without its scaling or an adapter, and that first failure is
    raised.
    """
    endpoints = session.endpoints if patterns == cdk.ALL else ()
    folder = _synthesise(session, patterns, endpoints)
    artifacts, before = _checked_assembly(session, options, folder, patterns)
    after = {name: artifact.template for name, artifact in artifacts.items()}
    title = f"Deploying {', '.join(session.endpoints)}" if session.endpoints else "Deploying"
    by_construct = {f"Endpoint-{deployment.name}": deployment for deployment in deployments}
    try:
        generators = [item for item in deployments if isinstance(item, GenerationDeployment)]
        publish_adapters(session, generators)
        take_first_steps(session, deployments, before, artifacts)
        with session.report.step(f"{title} (cdk deploy)") as step:

            def read_line(line: str) -> None:
                """Show a line; an endpoint that does not serve what was deployed ends it there."""
                cdk.show_line(step, line)
                path = cdk.finished_stack(line) or ""
                deployment = by_construct.get(path.rpartition("/")[2])
                if deployment is not None:
                    require_live_config(session.clients, deployment)
                    if deployment.is_component:
                        require_live_component(session.clients, deployment)

            deployed = cdk.deploy(
                session,
                folder,
                patterns,
                concurrency=options.concurrency,
                parameters=retention_parameters(before, after),
                on_line=read_line,
            )
            step.finish(deployed.summary)
        return deployed
    except RoundhouseError:
        try:
            restore_held_resources(session, deployments, artifacts)
        except RoundhouseError as error:
            session.report.print(
                "An endpoint may be without its scaling or an adapter until the next deploy: "
                f"{error}"
            )
        raise


def _synthesise(
    session: Session, patterns: tuple[str, ...], endpoints: tuple[str, ...] = ()
) -> Path:
    """Write the cloud assembly; cfn-lint, which then checks it, takes seconds to load meanwhile."""
    import template_rules

    with ThreadPoolExecutor(1) as pool, session.report.step("Synthesising (cdk synth)"):
        pool.submit(template_rules.cfn_lint_rules)
        return cdk.synthesise(session, patterns, endpoints)


def _checked_assembly(
    session: Session, options: DeployOptions, folder: Path, patterns: tuple[str, ...]
) -> tuple[dict[str, StackArtifact], dict[str, Template]]:
    """Return an assembly's chosen stacks and their deployed templates.

    Templates are checked and permissions approved then.
    """
    artifacts = {
        name: artifact
        for name, artifact in stack_artifacts(folder).items()
        if any(fnmatchcase(artifact.path, pattern) for pattern in patterns)
    }
    check_templates(session, folder, artifacts)
    before = deployed_templates(session, list(artifacts))
    after = {name: artifact.template for name, artifact in artifacts.items()}
    if patterns == cdk.ALL:
        options.before_deploying(before, after)
    require_approval(
        session.report,
        {name: added_permissions(before.get(name), after[name]) for name in after},
        folder=session.paths.build / "permissions",
        yes=options.yes,
        confirm=options.confirm,
    )
    return artifacts, before
