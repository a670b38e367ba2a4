"""Rules of Triton repositories of a user's own: where they lie, what is in them, what serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onboarding.checkpoint import checkpoint_sha256
from onboarding.dataset import Datasets, is_inside
from onboarding.fault import Fault
from onboarding.model_spec import RepositorySpec
from onboarding.rules.cases import EngineCase
from onboarding.rules.ensemble_rules import keys_without_effect, models_answer_alone
from onboarding.rules.source_rules import KINDS, PACKAGE
from onboarding.triton_repository import Repository, read_repository
from onboarding.validation import Checked

_PLACE = "source.triton_repository"


def repository_is_named_once(model: Checked[RepositorySpec], datasets: Datasets) -> Iterator[Fault]:
    """One source, one place of it, and the task of tensors, since the model names them itself."""
    spec = model.spec
    keys = (*KINDS, "path", "sha256", "pooling")
    for key in [key for key in keys if getattr(spec.source, key) is not None][:1]:
        yield model.at(f"source.{key}").fault(
            f"'source.{key}' stands beside '{_PLACE}'",
            way_out="keep one source; path and sha256 are keys of triton_repository",
        )
    if (spec.repository.folder is None) == (spec.repository.python_package is None):
        yield model.fault(
            _PLACE,
            "names no repository, or two",
            allowed="exactly one of folder, python_package",
            way_out="keep one of the two",
        )
    if spec.task != "tensors":
        yield model.at("task").fault(
            "a Triton repository names its tensors itself",
            value=spec.task,
            allowed="task: tensors",
            way_out="write it so",
        )


def repository_is_pinned(model: Checked[RepositorySpec], datasets: Datasets) -> Iterator[Fault]:
    """Files may be replaced under their names; a version range installs something else tomorrow."""
    source, root = model.spec.repository, datasets.root
    package, folder = source.python_package, source.folder
    if package is not None and not PACKAGE.fullmatch(package):
        yield model.at(f"{_PLACE}.python_package").fault(
            f"unpinned source: '{_PLACE}.python_package' has no exact version",
            value=package,
            allowed="name==1.2.3",
            way_out="add ==<version>",
        )
    if source.path is not None and (folder is not None or ".." in source.path.split("/")):
        yield model.fault(
            f"{_PLACE}.path",
            "is no folder of a package",
            allowed="with python_package, a folder inside its wheel, such as repository",
            way_out="write it relative to the wheel's root, or name the whole folder in `folder`",
        )
    if folder is None:
        return
    if not is_inside(root, folder) or not (root / folder).is_dir():
        yield model.fault(
            f"{_PLACE}.folder",
            "is no folder under the onboarding root",
            way_out="add it, such as models/mine/repository, or correct the path",
        )
    elif source.sha256 != (digest := checkpoint_sha256(root / folder)):
        key = "folder" if source.sha256 is None else "sha256"
        fault = model.at(f"{_PLACE}.{key}").fault(
            f"unpinned source: '{_PLACE}.folder' has no digest"
            if source.sha256 is None
            else f"'{_PLACE}.sha256' is not that of {folder}",
            value=getattr(source, key),
            way_out="review the files, and write the line below",
        )
        yield fault.model_copy(update={"add": f"    sha256: {digest}"})


def repository_can_be_loaded(model: Checked[RepositorySpec], datasets: Datasets) -> Iterator[Fault]:
    """Everything that is wrong with the files; those of a package the build reads."""
    repository = _read(model.spec, datasets.root)
    if repository is not None:
        yield from repository.faults


def repository_is_served_by_triton(
    model: Checked[RepositorySpec], datasets: Datasets
) -> Iterator[Fault]:
    """The other keys are of a network: a repository's configurations have their own."""
    yield from keys_without_effect(
        model,
        "a Triton repository",
        allowed="server",
        way_out="write it into the `config.pbtxt` of a model",
    )


def repository_fits_the_image_and_the_gpu(case: EngineCase) -> Iterator[Fault]:
    """Backends that the image has; TensorRT plans of this very GPU and build, in a package too."""
    spec, platform = case.model.spec, case.platform
    assert isinstance(spec, RepositorySpec)
    repository, plans = _read(spec, case.datasets.root), spec.repository.plans
    if repository is not None:
        yield from repository.backend_faults(platform.name, platform.backends)
        for file in repository.plans if plans is None else ():
            yield Fault(
                file=file,
                what=f"is a TensorRT plan, and '{_PLACE}.plans' names no GPU and no build that "
                "made it",
                way_out="name both there, or let Roundhouse compile the network: `source.onnx`",
            )
    if plans is None:
        return
    for key, needed in (("gpu", case.instance.gpu), ("tensorrt", platform.tensorrt)):
        if getattr(plans, key) != needed:
            yield case.model.fault(
                f"{_PLACE}.plans.{key}",
                f"is not what {case.instance.name} on platform {platform.name} has",
                allowed=needed or "no TensorRT plans there",
                way_out="compile the plans for it, or change the instance type or the platform",
            )


def _read(spec: RepositorySpec, root: Path) -> Repository | None:
    """Return the repository of a folder that is there; None of a package, or of no folder."""
    folder = spec.repository.folder
    if folder is None or not is_inside(root, folder) or not (root / folder).is_dir():
        return None
    return read_repository(root / folder, folder.rstrip("/"), spec.name)


RULES = (
    repository_is_named_once,
    repository_is_pinned,
    repository_can_be_loaded,
    repository_is_served_by_triton,
    models_answer_alone,
)
ENGINE_RULES = (repository_fits_the_image_and_the_gpu,)
