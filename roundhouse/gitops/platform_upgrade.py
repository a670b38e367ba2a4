"""Compares the platform data with the installed packages, and says how to follow them.

Nothing is looked up in a network: newer packages bring newer facts. What no package says, a person
must find out; no fact is guessed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from onboarding.nearest import comma_list
from onboarding.platform import HostImage, ServingPlatform, end_of_life
from onboarding.yaml_text import load_yaml
from roundhouse.dev.platform_data import (
    FRAMEWORK,
    newest_version,
    registry_differences,
    version_number,
)
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.paths import Paths
from roundhouse.processes import Command, Run

DATA = "onboarding/data"
PLATFORMS, REGISTRIES, HOSTS = (
    f"{DATA}/{name}.yaml" for name in ("serving_platforms", "triton_registries", "host_images")
)
SDK_TABLE = f"lib/python3.*/site-packages/sagemaker/core/image_uri_config/{FRAMEWORK}.json"
TRITON_IMAGE = "Triton image"
NEEDED = ("tensorrt", "trtexec_dialect", "cuda", "minimum_driver")
"""Facts of a platform that serves GPUs which no package says."""
NEW_ROW = """\
  - name: {name}
    triton: "{triton}"
    base_image: {image}
    tensorrt: null                   # of NVIDIA's release notes of this Triton, as the four below
    trtexec_dialect: null
    cuda: null
    minimum_driver: null
    inference_ami_version: null      # a host image whose driver is new enough
    onnxruntime: {onnxruntime}
    onnxruntime_tensorrt: null       # `tensorrt`, where ONNX Runtime's provider links to that major
    pytorch: {pytorch}
    baseline_minimum_driver: null    # of the CUDA that wheels of torch and onnxruntime-gpu bring
    quantization: {quantization}
"""


@dataclass(frozen=True, kw_only=True)
class PackageFacts:
    """What the installed packages and programs say; an empty version: not installed."""

    triton: Mapping[str, Any]
    """The SageMaker SDK's table of the Triton image."""
    sdk: str
    botocore: str
    host_images: tuple[str, ...]
    versions: Mapping[str, tuple[str, str]]
    """(pinned, installed) of aws-cdk and aws-cdk-lib."""
    releases: tuple[str, ...]
    """Node and Python as they run, such as node-22."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that differs from what the packages say, and who follows it."""

    what: str
    here: str
    packages: str
    action: str
    is_edit: bool = False
    """True: the upgrade's branch has the change. False: a person must act."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PlatformUpgrade:
    """What differs for one environment, and the files that change by their path."""

    platform: str
    findings: tuple[Finding, ...]
    texts: Mapping[str, str] = field(default_factory=dict)


def read_packages(paths: Paths, run: Run) -> PackageFacts:
    """Return what is installed. Raises NotReadyError without the SageMaker SDK's table."""
    from importlib.metadata import version

    import botocore
    from botocore.session import get_session

    table = next((paths.code / ".venvs" / "platform").glob(SDK_TABLE), None)
    if table is None:
        raise NotReadyError(
            "The SageMaker SDK's image table is not installed; `make platform-data` makes "
            ".venvs/platform, which has it."
        )
    sdk = next(iter(table.parents[3].glob("sagemaker_core-*.dist-info")), None)
    shape: Any = (
        get_session()
        .get_service_model("sagemaker")
        .shape_for("ProductionVariantInferenceAmiVersion")
    )
    cdk = paths.code / "node_modules" / "aws-cdk" / "package.json"
    node = run(Command(argv=("node", "--version"))).output.strip().lstrip("v").split(".")[0]
    pins = json.loads((paths.code / "package.json").read_text("utf-8"))["devDependencies"]
    library = next(
        line.partition("==")[2].strip()
        for line in (paths.code / "requirements" / "roundhouse.in").read_text("utf-8").splitlines()
        if line.startswith("aws-cdk-lib==")
    )
    return PackageFacts(
        triton=json.loads(table.read_text("utf-8")),
        sdk="" if sdk is None else sdk.name.removesuffix(".dist-info").partition("-")[2],
        botocore=botocore.__version__,
        host_images=tuple(shape.enum),
        versions={
            "aws-cdk": (
                pins["aws-cdk"],
                json.loads(cdk.read_text("utf-8"))["version"] if cdk.is_file() else "",
            ),
            "aws-cdk-lib": (library, version("aws-cdk-lib")),
        },
        releases=(
            *((f"node-{node}",) if node.isdecimal() else ()),
            "python-{}.{}".format(*sys.version_info),
        ),
    )


def platform_upgrade(
    environment: str, root: Path, facts: PackageFacts, today: str
) -> PlatformUpgrade:
    """Return what to change in the files below `root` for one environment, and why.

    `today`: a date as YYYY-MM-DD. Raises RoundhouseError for files that cannot be read.
    """
    file = f"environments/{environment}.yaml"
    try:
        spec = load_yaml((root / file).read_text("utf-8"))
        rows = load_yaml((root / PLATFORMS).read_text("utf-8"))["rows"]
        known = {row["name"]: ServingPlatform.model_validate(row) for row in rows}
        hosts = load_yaml((root / HOSTS).read_text("utf-8"))["rows"]
        host_images = {row["name"]: HostImage.model_validate(row) for row in hosts}
        present = known[spec["platform"]]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise RoundhouseError(
            f"{file} or the platform data of {DATA} cannot be read ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); mend it, or put the committed files back."
        ) from error
    texts: dict[str, str] = {}
    findings = [
        *_triton(file, spec, root, facts, (present, known.values()), texts),
        *_registries(root, facts, texts),
        *_hosts(facts, host_images, present),
        *_tools(facts, today),
    ]
    has_newer = any(item.what == TRITON_IMAGE for item in findings)
    platform = f"triton-{newest_version(facts.triton)}" if has_newer else present.name
    return PlatformUpgrade(platform=platform, findings=tuple(findings), texts=texts)


def _triton(
    file: str,
    spec: Mapping[str, Any],
    root: Path,
    facts: PackageFacts,
    platforms: tuple[ServingPlatform, Iterable[ServingPlatform]],
    texts: dict[str, str],
) -> Iterator[Finding]:
    """Yield the steps to the SDK's newest Triton image; a CPU platform has none of AWS's.

    `platforms`: the present one of the environment's file, and all.
    """
    present, known = platforms
    versions, newest = facts.triton["versions"], newest_version(facts.triton)
    if present.tensorrt is None or version_number(present.triton) >= version_number(newest):
        return
    image = f"{versions[newest]['repository']}:{versions[newest]['tag_prefix']}"
    name = f"triton-{newest}"
    row = next((item for item in known if item.name == name), None)
    text = (root / PLATFORMS).read_text("utf-8")

    def finding(action: str, *, is_edit: bool) -> Finding:
        return Finding(
            what=TRITON_IMAGE, here=present.triton, packages=newest, action=action,
            is_edit=is_edit,
        )  # fmt: skip

    if row is None:
        new = NEW_ROW.format(
            name=name,
            triton=newest,
            image=image,
            onnxruntime=present.onnxruntime,
            pytorch=present.pytorch or "null",
            quantization=present.quantization,
        )
        texts[PLATFORMS] = text.replace("\nrows:\n", f"\nrows:\n{new}", 1)
        yield finding(f"new row {name} in {PLATFORMS}", is_edit=True)
        lacking: tuple[str, ...] = NEEDED
    else:
        lacking = tuple(fact for fact in NEEDED if getattr(row, fact) is None)
        if row.base_image is None:
            path = ("rows", _index(text, row.name), "base_image")
            texts[PLATFORMS] = replace_scalar(text, path, image)
            yield finding(f"image of row {row.name} in {PLATFORMS}", is_edit=True)
    if lacking:
        yield finding(
            f"fill in {', '.join(lacking)} of {name} on the branch (NVIDIA's release notes), then "
            "run this again",
            is_edit=False,
        )
        return
    assert row is not None
    if row.inference_ami_version is None and spec.get("inference_ami_version") is None:
        yield finding(f"name the host image of {row.name} on the branch", is_edit=False)
        return
    if not (root / f"requirements/bindings-{row.tensorrt}.txt").is_file():
        yield finding(
            f"lock NVIDIA's bindings of TensorRT {row.tensorrt}: requirements/bindings-"
            f"{row.tensorrt}.in, then `make lock`",
            is_edit=False,
        )
        return
    texts[file] = replace_scalar((root / file).read_text("utf-8"), ("platform",), row.name)
    yield finding(f"`platform:` of {file}: {present.name} becomes {row.name}", is_edit=True)
    if present.trtexec_dialect != row.trtexec_dialect:
        yield Finding(
            what="TensorRT",
            here=str(present.tensorrt),
            packages=str(row.tensorrt),
            action="another major version: read its release notes; builds measure accuracy and "
            "latency anew",
        )


def _registries(root: Path, facts: PackageFacts, texts: dict[str, str]) -> Iterator[Finding]:
    """Yield regions whose account of the newest Triton image is another one, or is not known."""
    before = text = (root / REGISTRIES).read_text("utf-8")
    ours: Mapping[str, str] = load_yaml(text)["rows"]
    for region, known, theirs in registry_differences(facts.triton, ours):
        if theirs is not None and known is not None:
            text = replace_scalar(text, ("rows", region), f'"{theirs}"')
        elif theirs is not None:
            rows: Mapping[str, str] = load_yaml(text)["rows"]
            last = max((name for name in rows if name < region), default=None)
            anchor = "rows:\n" if last is None else f'  {last}: "{rows[last]}"\n'
            text = text.replace(anchor, f'{anchor}  {region}: "{theirs}"\n', 1)
        yield Finding(
            what=f"Triton registry of {region}",
            here=known or "none",
            packages=theirs or "none",
            action=f"account in {REGISTRIES}"
            if theirs is not None
            else "the newest image is not there: leave environments of the region as they are",
            is_edit=theirs is not None,
        )
    if text != before:
        texts[REGISTRIES] = text


def _hosts(
    facts: PackageFacts, known: Mapping[str, HostImage], present: ServingPlatform
) -> Iterator[Finding]:
    """Yield host images of GPUs that one side alone knows."""
    gpu = {name for name in facts.host_images if "-gpu-" in name}
    for name in sorted(gpu - known.keys()):
        yield Finding(
            what="host image",
            here="no row",
            packages=name,
            action=f"add its driver and CUDA to {HOSTS} (API_ProductionVariant)",
        )
    for name in sorted(known.keys() - gpu):
        in_use = " of this environment's platform" if name == present.inference_ami_version else ""
        yield Finding(
            what="host image",
            here=name,
            packages=f"botocore {facts.botocore} does not know it",
            action=f"take it out of {HOSTS}{', and name another one' if in_use else ''}",
        )


def _tools(facts: PackageFacts, today: str) -> Iterator[Finding]:
    """Yield releases without fixes, and a CDK that is not the pinned one."""
    for release in facts.releases:
        day = end_of_life().get(release)
        newer = [name for name, end in end_of_life().items() if end > today
                 and name.split("-")[0] == release.split("-")[0]]  # fmt: skip
        if day is not None and day < today:
            yield Finding(
                what=release.replace("-", " ").capitalize(),
                here=f"no fixes since {day}",
                packages=comma_list(newer),
                action="install a newer one, here and in the workflows",
            )
    for name, (pinned, installed) in facts.versions.items():
        if pinned != installed:
            yield Finding(
                what=name,
                here=pinned,
                packages=installed or "not installed",
                action="`make environments` installs what is pinned; else pin what is installed",
            )


def replace_scalar(text: str, path: tuple[str | int, ...], value: str) -> str:
    """Return a YAML text with one scalar replaced; comments and everything else stay."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for step in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            node = next(item for key, item in node.value if key.value == step)
    assert isinstance(node, yaml.ScalarNode)
    return f"{text[: node.start_mark.index]}{value}{text[node.end_mark.index :]}"


def _index(text: str, name: str) -> int:
    rows = load_yaml(text)["rows"]
    return next(index for index, row in enumerate(rows) if row["name"] == name)
