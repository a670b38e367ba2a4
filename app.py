"""Synthesises one stage an environment.

`cdk synth [-c env=NAME] [-c endpoint=NAME[,NAME …]] [-c root=DIR]`.

Reads its arguments and every file once. Where endpoints are named, only their stacks and the
foundation are synthesised.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aws_cdk import App

    from onboarding.fault import Fault
    from onboarding.tree import Tree
    from stacks.environment_stage import EnvironmentStage

REPOSITORY = Path(__file__).resolve().parent
NEEDED_PACKAGES = ("aws_cdk", "pydantic", "yaml")
CONTEXT_KEYS = ("env", "endpoint", "root")
NEAR = {"environment": "env", "environments": "env", "endpoints": "endpoint"}
"""Words that are written for a key of ours."""


def main() -> int:
    """Exit code 1, and every reason on standard error, when there is nothing right to deploy."""
    if len(sys.argv) > 1:
        given = " ".join(sys.argv[1:])
        return _refuse(
            f"app.py takes no argument, given {given}; context goes through cdk: npx cdk synth -c"
            " env=dev."
        )
    missing = _missing()
    return synthesize() if missing is None else _refuse(missing)


def synthesize(**given: Any) -> int:
    """Write the assembly that the context asks for; exit code as `main`.

    `given` are App's options beyond ours: without them the cdk command line's environment
    variables name the folder and the context.
    """
    from aws_cdk import App

    from onboarding.fault import FaultsError
    from onboarding.lock import LockError
    from roundhouse.errors import RoundhouseError

    # Stack traces of a Python app show jsii's own program.
    app = App(analytics_reporting=False, stack_traces=False, **given)
    try:
        stages = _hang_stages(app, _selection(app))
    except (FaultsError, LockError, RoundhouseError) as error:
        return _refuse(str(error))
    app.synth()
    for stage in stages:
        for refusal in stage.refusals():
            print(refusal, file=sys.stderr)
    return 0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the context asks for; `environment` None: every one, no `endpoints`: all of them."""

    root: Path
    environment: str | None
    endpoints: tuple[str, ...]


def _selection(app: App) -> Selection:
    from onboarding.fault import FaultsError

    faults = [*_mistyped_keys(app), *_root_faults(app)]
    if faults:
        raise FaultsError(faults)
    root, environment, endpoints = (
        app.node.try_get_context(key) for key in ("root", "env", "endpoint")
    )
    return Selection(
        root=REPOSITORY if root is None else Path(str(root)).resolve(),
        environment=None if environment is None else str(environment).strip(),
        endpoints=(
            ()
            if endpoints is None
            else tuple(dict.fromkeys(name.strip() for name in str(endpoints).split(",")))
        ),
    )


def _mistyped_keys(app: App) -> Iterator[Fault]:
    """A key that was meant for ours would leave out what it was meant to choose.

    Every environment would be synthesised. All others are the user's own, or the CDK's.
    """
    from onboarding.fault import Fault
    from onboarding.nearest import nearest

    for key in app.node.get_all_context():
        meant = nearest(key, (*CONTEXT_KEYS, *NEAR), cutoff=0.65)
        if meant is not None and key not in CONTEXT_KEYS:
            yield Fault(
                file=f"context key {key}",
                what="is not read here",
                allowed=f"{', '.join(CONTEXT_KEYS)}, and keys of your own that resemble none",
                way_out=f"did you mean '{NEAR.get(meant, meant)}'?",
            )


def _root_faults(app: App) -> Iterator[Fault]:
    from onboarding.fault import Fault

    root = app.node.try_get_context("root")
    if root is not None and (not str(root).strip() or not Path(str(root)).is_dir()):
        way_out = (
            "name the folder that holds models/ and environments/, or leave it out for this"
            " repository"
        )
        yield Fault(
            file="context key root",
            what="is no folder",
            value=str(root) or "nothing",
            way_out=way_out,
        )


def _hang_stages(app: App, selection: Selection) -> list[EnvironmentStage]:
    from onboarding.generation_resolve import generation_deployments
    from onboarding.resolve import deployments
    from stacks.environment_stage import EnvironmentStage, read_sources

    tree = _sound_tree(selection.root)
    sources, stages = read_sources(REPOSITORY), []
    for name in (
        sorted(tree.environments) if selection.environment is None else [selection.environment]
    ):
        own = _environment_tree(tree, selection.root, name)
        stage = EnvironmentStage(
            app,
            name,
            deployments=deployments(own, name, selection.endpoints),
            generators=generation_deployments(own, name, selection.endpoints),
            environment=own.environments[name],
            sources=sources,
            is_whole=not selection.endpoints,
            environments=own.environments,
        )
        stages.append(stage)
    return stages


def _environment_tree(tree: Tree, root: Path, environment: str) -> Tree:
    """Return what an environment deploys: the tree as it is, or that of its promotion's commit."""
    from onboarding.promotion import read_promotion

    if read_promotion(root, environment) is None:
        return tree
    from roundhouse.paths import Paths
    from roundhouse.processes import Processes
    from roundhouse.promoted_tree import environment_paths

    paths = Paths(code=REPOSITORY, tree=root, build=REPOSITORY / "build")
    return _sound_tree(environment_paths(paths, environment, Processes()).tree)


def _sound_tree(root: Path) -> Tree:
    from onboarding.fault import Fault, FaultsError
    from onboarding.tree import read_tree

    tree = read_tree(root)
    if tree.faults:
        raise FaultsError(tree.faults)
    if not tree.environments:
        raise FaultsError(
            [
                Fault(
                    file="environments",
                    what="holds no environment",
                    way_out="add environments/<name>.yaml",
                )
            ]
        )
    return tree


def _missing() -> str | None:
    """What this computer lacks, in one sentence."""
    packages = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if packages:
        return (
            f"app.py needs {', '.join(packages)}; run `make environments`, or `pip install -r"
            " requirements.txt`."
        )
    if shutil.which("node") is None:
        return "app.py needs Node.js, which is not on PATH; install version 20 or later."
    return None


def _refuse(reasons: str) -> int:
    print(reasons, file=sys.stderr)
    return 1


if __name__ == "__main__":
    # jsii writes eleven lines about the end of Node 20 otherwise; a newer Node ignores this.
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    # Node otherwise keeps tens of MiB of garbage before it looks, whatever is synthesised.
    os.environ.setdefault("NODE_OPTIONS", "--max-semi-space-size=2")
    sys.exit(main())
