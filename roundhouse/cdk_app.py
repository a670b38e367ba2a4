"""The CDK application of a repository: one stage an environment, of its onboarding files.

    app = create_app()
    stages = add_environments(app)
    app.synth()

`cdk synth [-c env=NAME] [-c endpoint=NAME[,NAME …]] [-c root=DIR]` chooses what is synthesised.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundhouse.errors import RoundhouseError
from roundhouse.paths import CODE, Paths, current_paths

if TYPE_CHECKING:
    from aws_cdk import App

    from onboarding.fault import Fault
    from onboarding.tree import Tree
    from stacks.environment_stage import EnvironmentStage

PACKAGES = ("onboarding", "stacks")
"""Ours that a folder beside app.py may hide."""
NEEDED_PACKAGES = ("aws_cdk", "pydantic", "yaml")
CONTEXT_KEYS = ("env", "endpoint", "root")
NEAR = {"environment": "env", "environments": "env", "endpoints": "endpoint"}
"""Words that are written for a key of ours."""


def create_app(arguments: Sequence[str] | None = None, **options: Any) -> App:
    """Return the CDK's App, quiet and quick.

    `arguments` None: those of this process, of which it takes none. `options` are App's: without
    them the cdk command line's environment variables name the folder and the context.

    Raises SystemExit, with one sentence, for an argument and for what this computer lacks.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if given:
        sys.exit(
            f"app.py takes no argument, given {' '.join(given)}; context goes through cdk: npx cdk "
            "synth -c env=dev."
        )
    if (missing := _missing()) is not None:
        sys.exit(missing)
    # jsii writes eleven lines about the end of Node 20 otherwise; a newer Node ignores this.
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    # Node otherwise keeps tens of MiB of garbage before it looks, whatever is synthesised.
    os.environ.setdefault("NODE_OPTIONS", "--max-semi-space-size=2")
    from aws_cdk import App

    # Stack traces of a Python app show jsii's own program.
    return App(analytics_reporting=False, stack_traces=False, **options)


def add_environments(app: App) -> dict[str, EnvironmentStage]:
    """Add the stages that the app's context asks for and return them by environment.

    The files are those of the repository around the current folder, or below the context's `root`;
    where endpoints are named, only their stacks and the foundation are synthesised. A stack of
    one's own in a stage is deployed with it: `Stack(stages["dev"], "Data")`. What cannot be
    deployed, such as an engine not yet built, is printed on standard error.

    Raises SystemExit with every fault of every file.
    """
    from onboarding.fault import FaultsError
    from onboarding.lock import LockError

    try:
        stages = _add_stages(app, *_selection(app))
    except (FaultsError, LockError, RoundhouseError) as error:
        sys.exit(str(error))
    for stage in stages.values():
        for refusal in stage.refusals():
            print(refusal, file=sys.stderr)
    return stages


def _selection(app: App) -> tuple[Paths, str | None, tuple[str, ...]]:
    """Return the files, environment and endpoints of the context; None, or no endpoint: all."""
    from onboarding.fault import FaultsError

    faults = [*_mistyped_keys(app), *_root_faults(app)]
    if faults:
        raise FaultsError(faults)
    environment, endpoints, root = (app.node.try_get_context(key) for key in CONTEXT_KEYS)
    paths = current_paths()
    if root is not None:
        paths = replace(paths, tree=Path(str(root)).resolve())
    names = () if endpoints is None else (name.strip() for name in str(endpoints).split(","))
    name = None if environment is None else str(environment).strip()
    return paths, name, tuple(dict.fromkeys(names))


def _mistyped_keys(app: App) -> Iterator[Fault]:
    """A key that was meant for ours would leave out what it was meant to choose.

    Every environment would be synthesised. All others are the user's own, or the CDK's.
    """
    from onboarding.fault import Fault, nearest

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
        yield Fault(
            file="context key root",
            what="is no folder",
            value=str(root) or "nothing",
            way_out="name the folder that holds models/ and environments/, or leave it out",
        )


def _add_stages(
    app: App, paths: Paths, environment: str | None, endpoints: tuple[str, ...]
) -> dict[str, EnvironmentStage]:
    from onboarding.generation_resolve import generation_deployments
    from onboarding.resolve import deployments
    from stacks.environment_stage import EnvironmentStage, read_sources

    tree, sources, stages = _sound_tree(paths), read_sources(paths.code), {}
    for name in sorted(tree.environments) if environment is None else [environment]:
        own = _environment_tree(tree, paths, name)
        stages[name] = EnvironmentStage(
            app,
            name,
            deployments=deployments(own, name, endpoints),
            generators=generation_deployments(own, name, endpoints),
            environment=own.environments[name],
            sources=sources,
            is_whole=not endpoints,
            environments=own.environments,
        )
    return stages


def _environment_tree(tree: Tree, paths: Paths, environment: str) -> Tree:
    """Return what an environment deploys: the tree as it is, or that of its promotion's commit."""
    from roundhouse.processes import Processes
    from roundhouse.promoted_tree import environment_paths

    own = environment_paths(paths, environment, Processes())
    return tree if own == paths else _sound_tree(own)


def _sound_tree(paths: Paths) -> Tree:
    from onboarding.fault import Fault, FaultsError
    from roundhouse.session import valid_tree

    tree = valid_tree(paths)
    if not tree.environments:
        way_out = "add environments/<name>.yaml"
        fault = Fault(file="environments", what="holds no environment", way_out=way_out)
        raise FaultsError([fault])
    return tree


def _missing() -> str | None:
    """What this computer lacks, or what hides a package of ours, in one sentence."""
    packages = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if packages:
        return f"app.py needs {', '.join(packages)}; run `pip install -r requirements.txt`."
    if shutil.which("node") is None:
        return "app.py needs Node.js, which is not on PATH; install version 20 or later."
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        file = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if file is None or not file.is_relative_to(CODE):
            place = name if file is None else file.parent
            return f"{place}: hides Roundhouse's package {name}; give that folder another name."
    return None
