"""What an environment deploys of its text generators, by a tree without faults and its locks.

And the plan of what would serve each of them, as `check` and `plan` show it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from onboarding.checkpoint import checkpoint_sha256
from onboarding.environment_spec import EnvironmentSpec
from onboarding.fault import Fault, FaultsError
from onboarding.promotion import PromotedCheckpoint, promoted_checkpoints, promotion_path
from onboarding.rules.cases import GenerationCase, generation_cases
from onboarding.text_generation.checkpoint_key import (
    checkpoint_key,
    checkpoint_schemes,
    dataset_paths,
)
from onboarding.text_generation.checkpoint_lock import CheckpointEntry, GenerationLock
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.gpu_memory import GIB
from onboarding.text_generation.plan import Candidate, TextGenerationPlan
from onboarding.text_generation.planner import Request, choose
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.tree import Tree, held_entries


def generation_deployments(
    tree: Tree, environment: str, only: Collection[str] = ()
) -> tuple[GenerationDeployment, ...]:
    """Return every text generator of an environment, or `only` some, by name.

    Names of `only` that are no text generator are left to `deployments`. Locks of others are not
    read. Raises FaultsError when the tree has faults, headers are missing, or a lock cannot be
    read.
    """
    if tree.faults:
        raise FaultsError(tree.faults)
    if environment not in tree.views:
        return ()
    view, faults = tree.views[environment], list[Fault]()
    found = []
    for case in sorted(generation_cases(view, tree.root), key=lambda case: case.spec.name):
        if only and case.spec.name not in only:
            continue
        try:
            found.append(_deployment(tree, case))
        except FaultsError as error:
            faults.extend(error.faults)
    if faults:
        raise FaultsError(faults)
    return tuple(found)


def checkpoint_keys(
    spec: TextGenerationSpec, root: Path, already: str | None = None
) -> Mapping[str, str]:
    """Return the scheme of each checkpoint key of a model, in the order of its schemes.

    `already` is the format that the source's weights have. Raises OSError for an unreadable
    dataset.
    """
    digests = {
        path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in dataset_paths(spec)
    }
    schemes = checkpoint_schemes(spec, already)
    return {checkpoint_key(spec, scheme, digests): scheme for scheme in schemes}


def scheme_plan(tree: Tree, environment: str, model: str, scheme: str) -> Candidate | None:
    """Return how one scheme of a model would be served; None where it cannot be planned."""
    for case in generation_cases(tree.views[environment], tree.root):
        if case.spec.name == model:
            request = case.request()
            is_planned = request is not None and any(case.candidates())
            return _plan(request, case, (scheme,)) if request and is_planned else None
    return None


def _deployment(tree: Tree, case: GenerationCase) -> GenerationDeployment:
    assert case.environment is not None
    spec, environment = case.spec, case.environment.spec
    request, types = case.request(), tuple(case.candidates())
    if request is None or not types or case.platform is None:
        raise FaultsError([_not_planned(case, request)])
    promoted = promoted_checkpoints(tree.root, environment.name).get(spec.name)
    keys = dict(checkpoint_keys(spec, tree.root, request.checkpoint.scheme))
    wanted = keys if promoted is None else {*keys, promoted.checkpoint_key}
    held, faults = held_entries(tree, environment, spec.name, GenerationLock, wanted)
    if faults:
        raise FaultsError(faults)
    locked = {key: entry for key, (entry, _) in held.items()}
    if promoted is not None:
        entry = _promoted_entry(environment, spec.name, promoted, locked)
        keys.setdefault(entry.checkpoint_key, entry.scheme)
    built = tuple(locked[key] for key in keys if key in locked)
    plans = {key: _plan(request, case, (scheme,)) for key, scheme in keys.items()}
    if promoted is None:
        candidate, serves = _choice(request, case, built, keys)
    else:
        serves = locked[promoted.checkpoint_key]
        own = [row for row in types if row.name == promoted.instance_type]
        candidate = choose(request.with_schemes((serves.scheme,)), own if own else types)[0]
    return GenerationDeployment(
        environment=environment,
        name=spec.name,
        spec=spec,
        platform=case.platform,
        candidate=candidate,
        entry=serves,
        built=built,
        checkpoint=request.checkpoint,
        plans=plans,
        wanted=tuple(
            (key, scheme) for key, scheme in keys.items() if key not in locked and plans[key].holds
        ),
        inference_ami_version=spec.endpoint.inference_ami_version
        or environment.inference_ami_version
        or case.platform.inference_ami_version,
        adapters={
            adapter.name: checkpoint_sha256(tree.root / adapter.source)
            for adapter in spec.serving.adapters
        },
        held_by={key: holder for key, (_, holder) in held.items() if holder is not None},
    )


def _choice(
    request: Request,
    case: GenerationCase,
    built: Sequence[CheckpointEntry],
    keys: Mapping[str, str],
) -> tuple[Candidate, CheckpointEntry | None]:
    """Return the best way to serve a checkpoint that is built, or to serve one to be built."""
    accepted = [entry for entry in built if entry.accepted]
    if accepted:
        served = _plan(request, case, tuple(keys[entry.checkpoint_key] for entry in accepted))
        if served.holds:
            return served, next(
                entry for entry in accepted if keys[entry.checkpoint_key] == served.scheme
            )
    return _plan(request, case, tuple(keys.values())), None


def _promoted_entry(
    environment: EnvironmentSpec,
    name: str,
    promoted: PromotedCheckpoint,
    locked: Mapping[str, CheckpointEntry],
) -> CheckpointEntry:
    """Return the lock entry that a promotion names. Raises FaultsError for another one, or none."""
    entry = locked.get(promoted.checkpoint_key)
    if entry is not None and entry.files_sha256 == promoted.files_sha256:
        return entry
    found = "no lock has it" if entry is None else f"its lock says {entry.files_sha256[:12]}…"
    fault = Fault(
        file=promotion_path(Path(), environment.name).as_posix(),
        what=f"names checkpoint {promoted.checkpoint_key} of '{name}' with files of "
        f"{promoted.files_sha256[:12]}…, and at its commit {found}",
        way_out="restore the file from git, or run `roundhouse promote` again",
    )
    raise FaultsError([fault])


def _plan(request: Request, case: GenerationCase, schemes: tuple[str, ...]) -> Candidate:
    """Return the best candidate of some schemes; of weights that are quantized, their own."""
    return choose(request.with_schemes(schemes), tuple(case.candidates()))[0]


def _not_planned(case: GenerationCase, request: Request | None) -> Fault:
    place = case.file.at("source")
    if request is None:
        return place.fault(
            f"'{case.spec.name}' cannot be planned: its checkpoint is not in the tree, and "
            "'source.headers' names no file of its headers",
            way_out=f"run `roundhouse check --fetch-headers {case.spec.name}`, then "
            "commit the file",
        )
    return place.fault(
        f"'{case.spec.name}' cannot be planned: the region has no GPU type",
        way_out="leave it out of this environment, or choose another region",
    )


def generation_plans(tree: Tree, environment: str) -> tuple[TextGenerationPlan, ...]:
    """Return the plan of every text generator of an environment; none of a tree with faults."""
    if tree.faults or environment not in tree.views:
        return ()
    cases = generation_cases(tree.views[environment], tree.root)
    return tuple(_serving_plan(tree, environment, case) for case in cases)


def plan_line(plan: TextGenerationPlan) -> str:
    """Return a plan in one sentence."""
    begin = f"{plan.environment}: text generator '{plan.model}'"
    item = plan.chosen
    if item is None:
        return f"{begin}: {' '.join(plan.notes)}"
    money = "price unknown" if item.usd_an_hour is None else f"{item.usd_an_hour:.2f} USD an hour"
    if item.usd_a_million_tokens is not None:
        money += f", {item.usd_a_million_tokens:.2f} USD a million output tokens"
    times = "times unknown" if item.itl_ms is None or item.ttft_ms is None else (
        f"p95 {item.itl_ms:.0f} ms a token and {item.ttft_ms:.0f} ms to the first"
    )  # fmt: skip
    return (
        f"{begin}: {item.instances} x {item.instance_type}, {item.scheme}, tensor parallel "
        f"{item.tensor_parallel}, {item.copies} copies of {item.expected_requests} requests each; "
        f"{item.kv_tokens:,} KV tokens a copy, {times}; {money}."
    )


def _serving_plan(tree: Tree, environment: str, case: GenerationCase) -> TextGenerationPlan:
    plan = TextGenerationPlan(
        model=case.spec.name,
        environment=environment,
        platform=case.spec.serving.platform,
        engine_version=case.engine_version,
    )
    request = case.request()
    if request is None:
        note = (
            "not planned: its checkpoint is not in the tree, and 'source.headers' names no file of "
            "its headers; `roundhouse check --fetch-headers` writes one."
        )
        return plan.model_copy(update={"notes": (note,)})
    types = tuple(case.candidates())
    if not types:
        return plan.model_copy(update={"notes": ("not planned: the region has no GPU type.",)})
    try:
        (deployment,) = generation_deployments(tree, plan.environment, (plan.model,))
    except FaultsError as error:
        return plan.model_copy(update={"notes": (f"not planned: {error}",)})
    if deployment.entry is not None:
        request = request.with_schemes((deployment.candidate.scheme,))
    chosen, *others = choose(request, types)
    return plan.model_copy(
        update={
            "checkpoints": deployment.checkpoints,
            "checkpoint_gib": request.checkpoint.bytes / GIB,
            "chosen": chosen,
            "others": tuple(others),
            "notes": tuple(_notes(case, chosen)),
        }
    )


def _notes(case: GenerationCase, chosen: Candidate) -> Iterator[str]:
    if not chosen.is_measured:
        yield (
            f"Memory and times of vLLM {case.engine_version} on {chosen.gpu} GPUs were not "
            "measured: assumed from vLLM 0.26.0 on an H200, with half a GiB more of overhead."
        )
    if case.spec.serving.adapters or case.spec.serving.speculative is not None:
        yield "What adapters and speculative decoding cost or save of the time is not counted."
