"""Synthesises one stage an environment: `cdk synth [-c env=NAME] [-c root=DIR]`; reads its arguments and every file once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aws_cdk import App

    from onboarding.tree import Tree

REPOSITORY = Path(__file__).resolve().parent
NEEDED_PACKAGES = ("aws_cdk", "pydantic", "yaml")


def main() -> int:
    """Exit code 1, and every reason on standard error, when there is nothing right to deploy."""
    if len(sys.argv) > 1:
        given = " ".join(sys.argv[1:])
        return _refuse(f"app.py takes no argument, given {given}; context goes through cdk: npx cdk synth -c env=dev.")
    missing = _missing()
    if missing is not None:
        return _refuse(missing)
    from aws_cdk import App

    from onboarding.fault import FaultsError
    from onboarding.tree import read_tree

    app = App(analytics_reporting=False, stack_traces=False)
    wanted, root = app.node.try_get_context("env"), app.node.try_get_context("root")
    tree = read_tree(REPOSITORY if root is None else Path(str(root)).resolve())
    try:
        _hang_stages(app, tree, None if wanted is None else str(wanted))
    except FaultsError as error:
        return _refuse(str(error))
    app.synth()
    return 0


def _hang_stages(app: App, tree: Tree, wanted: str | None) -> None:
    from onboarding.fault import Fault, FaultsError
    from onboarding.resolve import deployments
    from stacks.environment_stage import EnvironmentStage, Sources
    from stacks.image_tag import read_image_files

    if tree.faults:
        raise FaultsError(tree.faults)
    if not tree.environments:
        raise FaultsError([Fault(file="environments", what="holds no environment", way_out="add environments/<name>.yaml")])
    buildspec = (REPOSITORY / "engine_build" / "buildspec.yml").read_text(encoding="utf-8")
    sources = Sources(image_files=read_image_files(REPOSITORY), buildspec=buildspec)
    for name in sorted(tree.environments) if wanted is None else [wanted]:
        resolved = deployments(tree, name)
        EnvironmentStage(app, environment=tree.environments[name], deployments=resolved, sources=sources)


def _missing() -> str | None:
    """What this computer lacks, in one sentence."""
    packages = [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]
    if packages:
        return f"app.py needs {', '.join(packages)}; run `make environments`, or `pip install -r requirements.txt`."
    if shutil.which("node") is None:
        return "app.py needs Node.js, which is not on PATH; install version 20 or later."
    return None


def _refuse(reasons: str) -> int:
    print(reasons, file=sys.stderr)
    return 1


if __name__ == "__main__":
    # jsii writes eleven lines about the end of Node 20 otherwise; a newer Node ignores this.
    os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
    sys.exit(main())
