"""The onboarding files that an environment deploys: as they are, or those of its promotion."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onboarding.lock import lock_path
from onboarding.model_spec import EnsembleSpec
from onboarding.promotion import (
    FOLDER,
    PROMOTED,
    Promotion,
    promotion_path,
    read_promotion,
    write_promotion,
)
from onboarding.text_generation.checkpoint_key import generator_paths
from onboarding.tree import Tree, read_tree
from roundhouse.errors import RoundhouseError
from roundhouse.paths import Paths, writing
from roundhouse.processes import Run
from roundhouse.revisions import Git, export_revision

COMPLETE = ".complete"
"""Written last into an exported folder."""


def environment_paths(paths: Paths, environment: str, run: Run) -> Paths:
    """Return an environment's paths: its tree is that of its promotion's commit, if it has one.

    Raises LockError for a promotion that cannot be read, and as `promoted_folder` does.
    """
    promotion = read_promotion(paths.tree, environment)
    if promotion is None:
        return paths
    git = Git(folder=paths.tree, run=run)
    return replace(paths, tree=promoted_folder(promotion, git, paths.build))


def promoted_folder(promotion: Promotion, git: Git, build: Path) -> Path:
    """Return the folder with what a promotion deploys, exported once below build/.

    The files of its commit, in their place those of each model that it names, of that model's own
    commit, and the promotion itself, which says what text generators serve. Raises RoundhouseError
    for a commit that git does not have, or that is not merged.
    """
    file = promotion_path(git.folder, promotion.environment)
    for commit in dict.fromkeys((promotion.commit, *promotion.models.values())):
        _require_merged(git, commit, file)
    folder = build / FOLDER / promotion.environment
    base = _commit_folder(git, promotion.commit, folder)
    if not promotion.models and not promotion.checkpoints:
        return base
    own = promotion.model_dump(mode="json", include={"models", "checkpoints"})
    digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
    composed = folder / f"{promotion.commit}-{digest[:12]}"
    sources = {commit: _commit_folder(git, commit, folder) for commit in promotion.models.values()}
    with _exporting(composed) as is_new:
        if is_new:
            shutil.copytree(base, composed)
            (composed / COMPLETE).unlink()
            trees = {commit: read_tree(source) for commit, source in sources.items()}
            for model, commit in sorted(promotion.models.items()):
                _replace_files(trees[commit], model, composed, f"{file}: commit {commit}")
            write_promotion(composed, promotion, PROMOTED)
    return composed


def model_files(tree: Tree, model: str) -> tuple[str, ...]:
    """Return the files that a model's engine and endpoint follow from, relative to the root.

    Its own file, its locks, datasets, network, plugins and code, the shared endpoint that it joins,
    and what an ensemble's models follow from.
    """
    files = {f"models/{model}.yaml"}
    files |= {lock_path(Path(item.locks), model).as_posix() for item in tree.environments.values()}
    for view in tree.views.values():
        if model in view.generators:
            files |= {*generator_paths(view.generators[model].spec)}
        if model not in view.models:
            continue
        spec = view.models[model].spec
        engine = spec.engine
        datasets = (spec.accuracy, engine.calibration, engine.sensitivity_search)
        files |= {item.dataset for item in datasets if item is not None and item.dataset}
        plugins = (plugin.file for plugin in engine.plugins)
        reference = spec.accuracy.reference
        repository = spec.source.triton_repository
        source = (
            spec.source.checkpoint,
            spec.source.onnx,
            None if repository is None else repository.folder,
            None if reference is None else reference.onnx,
            *plugins,
        )
        files |= {path for path in source if path is not None and not path.startswith("s3://")}
        serving = spec.serving
        code = (serving.preprocessing, serving.postprocessing)
        files |= {item.file for item in code if item is not None}
        if isinstance(spec, EnsembleSpec):
            files.update(*(model_files(tree, name) for name in spec.models))
        if isinstance(spec.endpoint, str):
            files.add(f"endpoints/{spec.endpoint}.yaml")
    return tuple(sorted(files))


def _replace_files(tree: Tree, model: str, folder: Path, where: str) -> None:
    """Put the files of a model, as a tree has them, in the place of those in a folder."""
    if model not in {*tree.models, *tree.generators} or tree.faults:
        raise RoundhouseError(
            f"{where} has no sound models/{model}.yaml; restore the promotion from git."
        )
    for name in model_files(tree, model):
        source, destination = tree.root / name, folder / name
        if destination.is_dir():
            shutil.rmtree(destination)
        destination.unlink(missing_ok=True)
        destination.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, destination)
        elif source.exists():
            shutil.copyfile(source, destination)


def _commit_folder(git: Git, commit: str, folders: Path) -> Path:
    """Return the folder with the onboarding files of a commit, exported once."""
    folder = folders / commit
    with _exporting(folder) as is_new:
        if is_new:
            export_revision(git, commit, folder)
            # The commit's own promotions are of the time before.
            shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return folder


@contextmanager
def _exporting(folder: Path) -> Iterator[bool]:
    """Give whether a folder must be written; it counts as written once the block has ended."""
    if (folder / COMPLETE).exists():
        yield False
        return
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        yield True
        (folder / COMPLETE).touch()


def _require_merged(git: Git, commit: str, file: Path) -> None:
    if not git.has(commit):
        raise RoundhouseError(
            f"{file}: git does not have commit {commit} here; fetch the whole history "
            "(`git fetch --unshallow`, or `fetch-depth: 0` in a workflow), then try again."
        )
    if not git.is_merged(commit):
        raise RoundhouseError(
            f"{file}: commit {commit[:12]} is not on {git.default_base()}, so nobody has reviewed "
            "what would be deployed; merge that commit first, or restore the file from git."
        )
