"""Rules of CodeBuild's own images: for their kind of machine, and pulled by CodeBuild."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from template_rules.build_rules import PROJECT
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import boolean, fields, text

CURATED = re.compile(r"aws/codebuild/(?P<name>[^:]+)(:.*)?")
KINDS = {
    r"amazonlinux(2)?-aarch64-lambda-standard": ("ARM_LAMBDA_CONTAINER",),
    r"amazonlinux(2)?-x86_64-lambda-standard": ("LINUX_LAMBDA_CONTAINER",),
    r"amazonlinux(2)?-aarch64-standard": ("ARM_CONTAINER",),
    r"amazonlinux(2)?-x86_64-standard|standard": ("LINUX_CONTAINER", "LINUX_GPU_CONTAINER"),
    r"windows-base|windows": (
        "WINDOWS_CONTAINER",
        "WINDOWS_SERVER_2019_CONTAINER",
        "WINDOWS_SERVER_2022_CONTAINER",
    ),
}
"""Environment types of each curated image.

Source: CodeBuild user guide, "Docker images provided by CodeBuild".
"""


@rule("RH253", "an image of CodeBuild's own is for the machine, and pulled by CodeBuild")
def curated_image_elsewhere(template: Template) -> Iterator[Problem]:
    for project in template.of_type(PROJECT):
        environment = fields(project.properties.get("Environment"))
        kind, image = text(environment.get("Type")), text(environment.get("Image"))
        where = partial(Problem, resource=project.logical_id)
        if (
            kind is not None
            and "LAMBDA" in kind
            and boolean(environment.get("PrivilegedMode", False))
        ):
            what = f"{kind} has no privileged mode"
            yield where(
                path="Environment.PrivilegedMode", what=what, value="true", way_out="take it out"
            )
        match = None if image is None else CURATED.fullmatch(image)
        if match is None:
            continue
        if text(environment.get("ImagePullCredentialsType")) == "SERVICE_ROLE":
            what, path = (
                "CodeBuild pulls its own images itself",
                "Environment.ImagePullCredentialsType",
            )
            yield where(
                path=path,
                what=what,
                value="SERVICE_ROLE",
                allowed="CODEBUILD",
                way_out="write CODEBUILD",
            )
        fitting = [
            kinds for pattern, kinds in KINDS.items() if re.fullmatch(pattern, match["name"])
        ]
        if kind is not None and fitting and kind not in fitting[0] and kind.endswith("_CONTAINER"):
            what, allowed = f"the image runs on no {kind}", ", ".join(fitting[0])
            yield where(
                path="Environment.Image",
                what=what,
                value=image,
                allowed=allowed,
                way_out="take another image",
            )
