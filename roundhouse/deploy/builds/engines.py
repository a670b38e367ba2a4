"""The engines that an environment lacks, built in one execution of its state machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from onboarding.deployment import Deployment, Target
from onboarding.lock import BuiltEntry
from onboarding.names import artifact_bucket, engine_archive_path
from roundhouse.aws.clients import object_exists
from roundhouse.deploy.builds import execution
from roundhouse.deploy.builds.execution import BuildMonitor
from roundhouse.deploy.builds.requests import (
    BuildRequest,
    EngineRequest,
    EnginesNotBuiltError,
    missing_checkpoints,
    refuse_received,
    reused_plans,
)
from roundhouse.deploy.builds.source import (
    require_committed_sources,
    source_revision,
    upload_source,
)
from roundhouse.errors import RoundhouseError
from roundhouse.session import Session, valid_tree
from roundhouse.text import choices

ENGINES_AT_MOST = 100
"""Of one execution: the records of all must fit into its 256 KiB, even where every reason quotes
text of four bytes a letter."""


def missing_engines(session: Session, models: Collection[str] = ()) -> tuple[EngineRequest, ...]:
    """Engines with no lock entry, and those whose archive is gone from S3, each once.

    Of `models` only, when any are named; with an ensemble the models whose archives it copies.
    """
    pairs = [
        (deployment, target)
        for deployment in session.deployments()
        for target in deployment.built_targets
    ]
    generators = valid_tree(session.paths).views[session.environment.name].generators
    unknown = sorted(set(models) - {target.model.name for _, target in pairs} - set(generators))
    if unknown:
        names = (*(target.model.name for _, target in pairs), *generators)
        known = choices(unknown[0], dict.fromkeys(names))
        raise RoundhouseError(
            f"--model {unknown[0]}: no such model in environment {session.environment.name}; "
            f"{known}"
        )
    served = {target.engine_key for d in session.deployments() for target in d.targets}
    chosen = {
        target.engine_key: (d, target)
        for d, target in reversed(pairs)
        if (target.model.name in models if models else target.engine_key in served)
    }
    missing = _missing(session, reversed(chosen.values()))
    targets = [request.target for request in missing]
    received = [item for item in targets if session.is_promoted or item.held_by is not None]
    refuse_received(session, "Engines", [item.model.name for item in received])
    steps = {
        step.engine_key: (request.deployment, step)
        for request in missing
        for step in request.target.steps
        if step.engine_key not in chosen
    }
    return reused_plans(session, (*_missing(session, steps.values()), *missing))


def missing_builds(session: Session, models: Collection[str] = ()) -> tuple[BuildRequest, ...]:
    """Return what builds must make of every kind of workload; of `models` only, when any are named.

    Raises RoundhouseError for an unknown model, BuildFailedError for what is received by promotion.
    """
    return *missing_engines(session, models), *missing_checkpoints(session, models)


def _missing(
    session: Session, pairs: Iterable[tuple[Deployment, Target]]
) -> tuple[EngineRequest, ...]:
    reasons = [(d, target, _why(session, target)) for d, target in pairs]
    return tuple(
        EngineRequest(deployment=d, target=target, why=why)
        for d, target, why in reasons
        if why is not None
    )


def waves(requests: Sequence[EngineRequest]) -> tuple[tuple[EngineRequest, ...], ...]:
    """Return requests by wave: one that needs a network of an earlier one waits for it.

    So does one that is packaged of another's plan, and an ensemble, for its models' archives.

    Engines with most networks come first.
    """
    left = sorted(requests, key=lambda request: (-len(request.target.network_keys), request.key))
    made: set[str] = set()
    result: list[tuple[EngineRequest, ...]] = []
    while left:
        making: set[str] = set()
        unbuilt = {request.key for request in left}
        wave: list[EngineRequest] = []
        for request in left:
            new = set(request.target.network_keys.values()) - made
            archives = {step.engine_key for step in request.target.steps}
            if request.plan_from is not None:
                # Whoever compiled the plan made its networks.
                new, archives = set(), {request.plan_from.engine_key}
            if not new & making and not archives & unbuilt:
                wave.append(request)
                making |= new
        left = [request for request in left if request not in wave]
        made |= making
        result.append(tuple(wave))
    return tuple(result)


def build_all(
    session: Session,
    requests: Sequence[BuildRequest],
    sleep: Callable[[float], None] = time.sleep,
    *,
    allow_dirty: bool = False,
) -> tuple[BuiltEntry, ...]:
    """Build every request and write each lock as soon as it is published.

    Of several with one plan that no lock has, the first compiles it. Ctrl-C stops everything that
    was started.

    Raises EnginesNotBuiltError with every reason, once all others have ended and are recorded.
    """
    if not requests:
        return ()
    if len(requests) > ENGINES_AT_MOST:
        raise RoundhouseError(
            f"Refused before building: {len(requests)} engines, and one execution builds at most "
            f"{ENGINES_AT_MOST}; build some first, `roundhouse build --env "
            f"{session.environment.name} --model M`."
        )
    engines = reused_plans(session, [item for item in requests if isinstance(item, EngineRequest)])
    others = [item for item in requests if not isinstance(item, EngineRequest)]
    require_committed_sources(session, allow_dirty=allow_dirty)
    source = upload_source(session)
    revision = source_revision(session, source, allow_dirty=allow_dirty)
    first, *later = waves(engines) or ((),)
    given = {
        "source": source,
        "commit": revision,
        "waves": [[item.document() for item in wave] for wave in ((*others, *first), *later)],
    }
    monitor = BuildMonitor(
        session=session,
        requests={request.key: request for request in (*others, *engines)},
        sleep=sleep,
    )
    monitor.follow(execution.start(session.clients, session.environment, given))
    if monitor.failures:
        raise EnginesNotBuiltError(monitor.built, monitor.failures)
    return tuple(monitor.built)


def _why(session: Session, target: Target) -> str | None:
    if target.lock_entry is None:
        return "not in the lock"
    bucket = artifact_bucket(session.environment)
    if not object_exists(session.clients("s3"), bucket, engine_archive_path(target.engine_key)):
        return "in the lock, but gone from S3"
    return None
