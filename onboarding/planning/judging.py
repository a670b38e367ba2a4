"""The memory plans of every environment of a tree, as faults and notes for `roundhouse check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onboarding.deployment import Deployment
from onboarding.document import Place
from onboarding.fault import Fault, FaultsError, in_order
from onboarding.planning.sentences import planning_faults, planning_notes
from onboarding.resolve import deployments
from onboarding.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What cannot work by what the locks measured, and what will work with a cost."""

    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def judged(tree: Tree) -> Judgement:
    """Reads the locks of every environment; a tree with faults of its own is not judged further."""
    faults: list[Fault] = []
    notes: list[str] = []
    for environment in () if tree.faults else tree.views:
        try:
            found = deployments(tree, environment)
        except FaultsError as error:
            faults.extend(error.faults)
            continue
        for deployment in found:
            faults.extend(_faults(tree, deployment))
            notes.extend(f"{environment}: {note}" for note in planning_notes(deployment))
    return Judgement(faults=in_order(faults), notes=tuple(dict.fromkeys(notes)))


def _faults(tree: Tree, deployment: Deployment) -> Iterator[Fault]:
    for sentence in planning_faults(deployment):
        what, _, way_out = sentence.partition("; ")
        yield _place(tree, deployment).fault(
            f"in environment {deployment.environment.name}, {what}", way_out=way_out
        )


def _place(tree: Tree, deployment: Deployment) -> Place:
    """Where the endpoint's instance type is written."""
    view = tree.views[deployment.environment.name]
    if deployment.multi_model:
        return view.endpoints[deployment.name].document.at("instance_type")
    return view.models[deployment.name].document.at("endpoint", "instance_type")
