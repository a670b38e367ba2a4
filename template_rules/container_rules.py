"""Rules of where a model's image and archive lie."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from template_rules.finding import Problem
from template_rules.hosting import MODEL, all_variants, containers
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import at, fields, is_known, masked, number, shown, text

REGISTRY = re.compile(
    r"\d{12}\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)/.+"
)
SUFFIXES = {"cn-": "amazonaws.com.cn"}
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@rule("RH112", "a model's image is in ECR, in the stack's own region")
def image_elsewhere(template: Template) -> Iterator[Problem]:
    region = template.stack.region
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            image = container.get("Image")
            if not isinstance(image, str) or not is_known(image.split("/")[0]) or not masked(image):
                continue
            where = partial(
                Problem, resource=model.logical_id, path=f"{path}.Image", value=shown(image)
            )
            match = REGISTRY.fullmatch(masked(image))
            access = at(container, "ImageConfig", "RepositoryAccessMode")
            if match is None:
                private = access is not None and (not is_known(access) or access == "Vpc")
                if not private and image not in template.defaults and "/" in image:
                    what = (
                        "SageMaker pulls images from ECR, or from a registry in the model's own VPC"
                    )
                    allowed = "account.dkr.ecr.region.amazonaws.com/repository:tag"
                    yield where(
                        what=what,
                        allowed=allowed,
                        way_out="push it to ECR, or say RepositoryAccessMode: Vpc",
                    )
                continue
            suffix = next(
                (each for start, each in SUFFIXES.items() if match["region"].startswith(start)),
                "amazonaws.com",
            )
            if (
                match["suffix"] in ("amazonaws.com", "amazonaws.com.cn")
                and match["suffix"] != suffix
            ):
                what = f"registries of {match['region']} end in {suffix}"
                yield where(what=what, allowed=suffix, way_out="write ${AWS::URLSuffix}")
            elif (
                region is not None and match["region"] != region and image not in template.defaults
            ):
                what = f"the image is in {match['region']}, and a model of {region} pulls none from there"
                yield where(what=what, allowed=region, way_out="name the repository of this region")


@rule("RH113", "a single model's archive is one .tar.gz", "warning")
def archive_of_another_kind(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            url, mode = (
                text(container.get("ModelDataUrl")),
                text(container.get("Mode", "SingleModel")),
            )
            if (
                url is None
                or mode != "SingleModel"
                or url.endswith(".tar.gz")
                or url in template.defaults
            ):
                continue
            what = "SageMaker unpacks nothing but one gzip compressed tar archive"
            way_out = "pack it so, or name files by ModelDataSource"
            yield Problem(
                resource=model.logical_id,
                path=f"{path}.ModelDataUrl",
                what=what,
                value=url,
                allowed="s3://bucket/key.tar.gz",
                way_out=way_out,
            )


@rule("RH115", "a container's variables have names that a process takes")
def ill_named_variable(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            for name in fields(container.get("Environment")):
                if (
                    is_known(name)
                    and not name.startswith("Fn::")
                    and VARIABLE.fullmatch(name) is None
                ):
                    what = "CreateModel refuses the variable's name"
                    yield Problem(
                        resource=model.logical_id,
                        path=f"{path}.Environment",
                        what=what,
                        value=name,
                        allowed="letters, digits and _, no digit first",
                        way_out="rename it",
                    )


@rule(
    "RH131", "a serverless variant has memory in whole GiB, and no more provisioned than it may run"
)
def ill_sized_serverless(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        given = fields(variant.properties.get("ServerlessConfig"))
        memory, most, ready = (
            number(given.get(name))
            for name in ("MemorySizeInMB", "MaxConcurrency", "ProvisionedConcurrency")
        )
        where = partial(Problem, resource=variant.config.logical_id)
        if memory is not None and memory % 1024:
            what, allowed = (
                "the memory is none that SageMaker has",
                "1024, 2048, 3072, 4096, 5120, 6144",
            )
            path = f"{variant.path}.ServerlessConfig.MemorySizeInMB"
            yield where(
                path=path,
                what=what,
                value=f"{memory:g}",
                allowed=allowed,
                way_out="take one of these",
            )
        if most is not None and ready is not None and ready > most:
            what, allowed = "more is provisioned than may run at once", f"at most {most:g}"
            path = f"{variant.path}.ServerlessConfig.ProvisionedConcurrency"
            yield where(
                path=path,
                what=what,
                value=f"{ready:g}",
                allowed=allowed,
                way_out="lower it, or raise MaxConcurrency",
            )
