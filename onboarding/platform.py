"""The platform lock: dated, sourced rows on instance types and serving platforms.

`None` is "unknown", never a guess.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from onboarding.values import PYTORCH_RUNTIMES, QuantizationMode, Runtime, Value
from onboarding.yaml_text import load_data

BuildRoute = Literal["cpu", "gpu", "fleet", "training-job"]


class InstanceType(Value):
    """One SageMaker hosting type. Memory in GiB."""

    name: str
    gpu: str | None = None
    gpu_count: int = 0
    gpu_memory_gib: float | None = None
    compute_capability: str
    vcpus: int | None = None
    memory_gib: float | None = None
    multi_model_gpu: bool = False
    local_nvme_gb: int | None = None

    @property
    def is_gpu(self) -> bool:
        """True when engines for this type are TensorRT plans."""
        return self.compute_capability != "cpu"

    @property
    def local_nvme(self) -> bool:
        """True when the type has instance storage of its own, which no KMS key of ours covers."""
        return self.local_nvme_gb is not None

    @property
    def regions(self) -> tuple[str, ...] | None:
        """Regions where SageMaker hosts the type; None where that is not known."""
        rows = _instance_regions()["rows"]
        family = self.name.rpartition(".")[0]
        known: list[str] | None = rows.get(self.name, rows.get(family))
        return None if known is None else tuple(known)

    def is_missing_in(self, region: str) -> bool:
        """True when the price list covers a region and has no row of this type there."""
        is_covered = region in _instance_regions()["covered"]
        return is_covered and self.regions is not None and region not in self.regions


class ServingPlatform(Value):
    """One choice of serving and builder image, trtexec dialect, quantization mode and host AMI."""

    name: str
    triton: str
    base_image: str | None
    tensorrt: str | None
    trtexec_dialect: Literal[10, 11] | None
    cuda: str | None
    minimum_driver: int | None
    inference_ami_version: str | None
    onnxruntime: str
    onnxruntime_tensorrt: str | None
    """The TensorRT that ONNX Runtime's provider loads; None where the platform has none that it
    does."""
    pytorch: str | None
    baseline_minimum_driver: int | None
    """NVIDIA driver that the CUDA builds of torch and ONNX Runtime need."""
    quantization: QuantizationMode
    backends: Annotated[tuple[str, ...], Field(strict=False)]
    """Triton's, in the image; `ensemble` is Triton itself."""

    def runtime_version(self, runtime: Runtime) -> str | None:
        """Return the version of a runtime's library; None where the platform has none."""
        if runtime == "triton":
            return self.triton
        if runtime == "tensorrt":
            return self.tensorrt
        if runtime in PYTORCH_RUNTIMES:
            return self.pytorch
        if runtime == "onnxruntime-tensorrt" and self.onnxruntime_tensorrt is None:
            return None
        return self.onnxruntime


class HostImage(Value):
    """One `InferenceAmiVersion` and the NVIDIA driver it brings."""

    name: str
    driver: int
    cuda: str


def _rows(file_name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = load_data(file_name)["rows"]
    return rows


@cache
def _instance_regions() -> Any:
    return load_data("instance_regions.yaml")


@cache
def instance_types() -> dict[str, InstanceType]:
    """Every hosting type known, by name."""
    return {row.name: row for row in map(InstanceType.model_validate, _rows("instance_types.yaml"))}


@cache
def serving_platforms() -> dict[str, ServingPlatform]:
    """Every serving platform known, by name."""
    return {
        row.name: row
        for row in map(ServingPlatform.model_validate, _rows("serving_platforms.yaml"))
    }


@cache
def host_images() -> dict[str, HostImage]:
    """Every host image known, by `InferenceAmiVersion`."""
    return {row.name: row for row in map(HostImage.model_validate, _rows("host_images.yaml"))}


@cache
def triton_registries() -> dict[str, str]:
    """The account whose registry holds AWS's Triton image, by region."""
    registries: dict[str, str] = load_data("triton_registries.yaml")["rows"]
    return registries


def is_gpu_model(driver_name: str, gpu: str) -> bool:
    """True when the driver's name of a GPU ("NVIDIA A10G") holds every word of a row's ("A10G")."""
    found, wanted = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (driver_name, gpu))
    return wanted <= found


def aws_partition(region: str) -> str:
    """The AWS partition of a region."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def url_suffix(region: str) -> str:
    """The domain of a region's services; China's regions have one of their own."""
    return "amazonaws.com.cn" if aws_partition(region) == "aws-cn" else "amazonaws.com"


def registry_host(account: str, region: str) -> str:
    """Host name of an account's ECR registry."""
    return f"{account}.dkr.ecr.{region}.{url_suffix(region)}"


CODEBUILD_GPU_REGIONS = (
    "us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1",
    "ap-southeast-2",
)  # fmt: skip
"""Where CodeBuild has LINUX_GPU_CONTAINER by every list of AWS: that of projects has four regions
more than that of fleets.
"""

PACKAGING_ROUTE: BuildRoute = "cpu"
"""Where an engine of a plan that is compiled already is built: no machine costs less."""


def build_route(compute_capability: str, *, codebuild_gpu: bool, fleet: bool = False) -> BuildRoute:
    """Where an engine for a compute capability is compiled.

    On-demand CodeBuild has one usable GPU, the A10G (8.6), where the environment has it at all;
    everything else needs a fleet that the environment names, or a SageMaker training job on the
    endpoint's own instance type.
    """
    if compute_capability == "cpu":
        return "cpu"
    if compute_capability == "8.6" and codebuild_gpu:
        return "gpu"
    return "fleet" if fleet else "training-job"


FILE = "tensorrt_operators.yaml"


class OperatorList(Value):
    """The list of one TensorRT release, which later ones have only added to so far."""

    tensorrt: str
    date: str
    source: str
    supported: tuple[str, ...]
    restricted: dict[str, str]
    """What holds for an operator that is supported with restrictions."""
    unsupported: tuple[str, ...]


@cache
def operator_list() -> OperatorList:
    """Return the shipped list."""
    return OperatorList.model_validate_json(json.dumps(load_data(FILE)))
