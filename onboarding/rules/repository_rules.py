"""Rules of Triton repositories of a user's own: where they lie, what is in them, what serves."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.checkpoint import checkpoint_sha256
from onboarding.dataset import is_inside
from onboarding.fault import Fault
from onboarding.repository_spec import RepositorySpec
from onboarding.rules.ensemble_rules import keys_without_effect
from onboarding.rules.rule import EngineCase, ModelCase, rule
from onboarding.rules.source_rules import KINDS, PACKAGE
from onboarding.triton_repository import Repository, read_repository

_PLACE = ("source", "triton_repository")


@rule("source", "task")
def repository_is_named_once(case: ModelCase) -> Iterator[Fault]:
    """One source, one place of it, and the task of tensors, since the model names them itself."""
    spec, place = _spec(case), case.document.at(*_PLACE)
    others = [kind for kind in KINDS if getattr(spec.source, kind) is not None]
    others += [
        key for key in ("path", "sha256", "pooling") if getattr(spec.source, key) is not None
    ]
    if others:
        yield case.document.at("source", others[0]).fault(
            f"'source.{others[0]}' stands beside 'source.triton_repository'",
            way_out="keep one source; path and sha256 are keys of triton_repository",
        )
    if (spec.repository.folder is None) == (spec.repository.python_package is None):
        yield place.fault(
            "'source.triton_repository' names no repository, or two",
            allowed="exactly one of folder, python_package",
            way_out="keep one of the two",
        )
    if spec.task != "tensors":
        yield case.document.at("task").fault(
            "a Triton repository names its tensors itself",
            value=spec.task,
            allowed="task: tensors",
            way_out="write it so",
        )


@rule("source")
def repository_is_pinned(case: ModelCase) -> Iterator[Fault]:
    """Files may be replaced under their names; a version range installs something else tomorrow."""
    source = _spec(case).repository
    package, folder = source.python_package, source.folder
    if package is not None and not PACKAGE.fullmatch(package):
        yield case.document.at(*_PLACE, "python_package").fault(
            "unpinned source: 'source.triton_repository.python_package' has no exact version",
            value=package,
            allowed="name==1.2.3",
            way_out="add ==<version>",
        )
    if source.path is not None and (folder is not None or ".." in source.path.split("/")):
        yield case.document.at(*_PLACE, "path").fault(
            "'source.triton_repository.path' is no folder of a package",
            value=source.path,
            allowed="with python_package, a folder inside its wheel, such as repository",
            way_out="write it relative to the wheel's root, or name the whole folder in `folder`",
        )
    if folder is None:
        return
    root = case.datasets.root
    if not is_inside(root, folder) or not (root / folder).is_dir():
        yield case.document.at(*_PLACE, "folder").fault(
            "'source.triton_repository.folder' is no folder under the onboarding root",
            value=folder,
            way_out="add it, such as models/mine/repository, or correct the path",
        )
    elif source.sha256 != (digest := checkpoint_sha256(root / folder)):
        key = "folder" if source.sha256 is None else "sha256"
        fault = case.document.at(*_PLACE, key).fault(
            "unpinned source: 'source.triton_repository.folder' has no digest"
            if source.sha256 is None
            else f"'source.triton_repository.sha256' is not that of {folder}",
            value=getattr(source, key),
            way_out="review the files, and write the line below",
        )
        yield fault.model_copy(update={"add": f"    sha256: {digest}"})


@rule("source", "name")
def repository_can_be_loaded(case: ModelCase) -> Iterator[Fault]:
    """Everything that is wrong with the files; those of a package the build reads."""
    repository = _read(case)
    if repository is not None:
        yield from repository.faults


@rule("serving")
def repository_is_served_by_triton(case: ModelCase) -> Iterator[Fault]:
    """The other keys are of a network: a repository's configurations have their own."""
    yield from keys_without_effect(
        case,
        "a Triton repository",
        but=("server",),
        allowed="server",
        way_out="write it into the `config.pbtxt` of a model",
    )


@rule("endpoint")
def repository_has_an_endpoint_of_its_own(case: ModelCase) -> Iterator[Fault]:
    """Of one Triton, two archives with a model of one name cannot be loaded."""
    endpoint = case.spec.endpoint
    if isinstance(endpoint, str):
        yield case.document.at("endpoint").fault(
            "a Triton repository cannot share a multi-model endpoint: its models' names would meet "
            "others",
            value=endpoint,
            allowed="an endpoint of its own, or `joins:`",
            way_out="give it an endpoint",
        )


@rule("source", "name")
def repository_fits_the_image_and_the_gpu(case: EngineCase) -> Iterator[Fault]:
    """Backends that the image has; TensorRT plans of this very GPU and build, in a package too."""
    repository, platform, plans = _read(case), case.platform, _spec(case).repository.plans
    if repository is not None:
        yield from repository.backend_faults(platform.name, platform.backends)
        for file in repository.plans if plans is None else ():
            yield Fault(
                file=file,
                what="is a TensorRT plan, and 'source.triton_repository.plans' names no GPU and no "
                "build that made it",
                way_out="name both there, or let Roundhouse compile the network: `source.onnx`",
            )
    if plans is None:
        return
    for key, given, needed in (
        ("gpu", plans.gpu, case.instance.gpu),
        ("tensorrt", plans.tensorrt, platform.tensorrt),
    ):
        if given != needed:
            yield case.document.at(*_PLACE, "plans", key).fault(
                f"'source.triton_repository.plans.{key}' is not what {case.instance.name} on "
                f"platform {platform.name} has",
                value=given,
                allowed=needed or "no TensorRT plans there",
                way_out="compile the plans for it, or change the instance type or the platform",
            )


def _read(case: ModelCase | EngineCase) -> Repository | None:
    """Return the repository of a folder that is there; None of a package, or of no folder."""
    folder = _spec(case).repository.folder
    root = case.root if isinstance(case, EngineCase) else case.datasets.root
    if folder is None or not is_inside(root, folder) or not (root / folder).is_dir():
        return None
    return read_repository(root / folder, folder.rstrip("/"), case.spec.name)


def _spec(case: ModelCase | EngineCase) -> RepositorySpec:
    assert isinstance(case.spec, RepositorySpec)
    return case.spec
