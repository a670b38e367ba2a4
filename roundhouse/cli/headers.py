"""`roundhouse headers`: the headers of a text generator's checkpoint, for `check` and `plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Root

EXAMPLE = "roundhouse headers support-chat"


def headers(
    name: Annotated[str, typer.Argument(help="Text-generation model: a file in models/.")],
    draft: Annotated[
        bool, typer.Option("--draft", help="Of its draft model: serving.speculative.model.")
    ] = False,
    root: Root = None,
) -> None:
    """Fetch a text generator's tensor headers.

    Its config.json and the headers of its safetensors files, from which `check` and `plan` count
    bytes; kilobytes, whatever the size of the weights.
    """
    from onboarding.tree import read_tree
    from roundhouse.aws.clients import aws_clients
    from roundhouse.inspection.headers import (
        fetch_headers,
        folder_headers,
        headers_path,
        open_files,
        source_of,
    )
    from roundhouse.inspection.package_headers import package_headers
    from roundhouse.paths import current_paths
    from roundhouse.processes import Processes
    from roundhouse.report import open_report
    from roundhouse.settings import child_environment, inherited

    paths, report = current_paths(root), open_report()
    tree = read_tree(paths.tree)
    file = headers_path(tree, name, draft=draft)
    source = source_of(tree, name, draft=draft)
    if source.checkpoint is not None and "://" not in source.checkpoint:
        found = folder_headers(paths.tree / source.checkpoint / (source.path or ""))
    elif source.python_package is not None:
        variables = child_environment(inherited())
        found = package_headers(source, paths.code, variables, Processes())
    else:
        region = next((spec.region for spec in tree.environments.values()), "us-east-1")
        found = fetch_headers(open_files(source, aws_clients(region), dict(inherited())))
    place = paths.tree / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(found.document(), encoding="utf-8")
    report.print(
        f"{file}: {len(found.tensors)} tensors, {found.bytes / (1 << 30):.1f} GiB of weights."
    )
    if source.headers is None:
        section = "serving.speculative" if draft else "source"
        report.print(f"Add `headers: {file}` to `{section}` of models/{name}.yaml.")
