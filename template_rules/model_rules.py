"""Rules of SageMaker models: role, container, model data, isolation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from template_rules.finding import Problem
from template_rules.hosting import (
    MODEL,
    all_variants,
    containers,
    instance_facts,
    is_gpu,
    mode_of,
    models_of,
)
from template_rules.rule import rule
from template_rules.serving_images import image_name
from template_rules.template import Template
from template_rules.values import (
    at,
    boolean,
    fields,
    is_known,
    is_wholly_unknown,
    shown,
    surely_has,
    text,
)

CONTENT_NAME = re.compile(r"[-.][0-9a-f]{6,64}$|[0-9]{8,}$")
MOST_VARIABLES, LONGEST_VARIABLE = 100, 1024


@rule("RH100", "a model names the role that its container runs with")
def model_without_role(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        if "ExecutionRoleArn" not in model.properties:
            yield Problem(
                resource=model.logical_id,
                path="ExecutionRoleArn",
                what="the model has no ExecutionRoleArn, and CreateModel refuses it",
                way_out="name a role that may pull this image and read this model's data",
            )


@rule("RH101", "a model has a primary container or a list of containers, never both")
def model_without_container(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        perhaps = [
            name for name in ("PrimaryContainer", "Containers") if model.properties.get(name)
        ]
        there = [name for name in perhaps if surely_has(model.properties, name)]
        if len(there) > 1 or not perhaps:
            what = (
                "the model has no container"
                if not there
                else "the model has both PrimaryContainer and Containers"
            )
            yield Problem(
                resource=model.logical_id,
                path="PrimaryContainer",
                what=what,
                way_out="write exactly one of them",
            )


@rule("RH102", "a container names its image, unless a model package brings one")
def container_without_image(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            if "Image" not in container and "ModelPackageName" not in container:
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.Image",
                    what="the container has no image",
                    way_out="name one",
                )


@rule("RH103", "a multi-model container takes its archives from an S3 prefix that ends with /")
def multi_model_without_prefix(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            url = container.get("ModelDataUrl")
            if (
                text(container.get("Mode")) != "MultiModel"
                or "ModelDataSource" in container
                or is_wholly_unknown(url)
            ):
                continue
            if not isinstance(url, str) or not url.endswith("/"):
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.ModelDataUrl",
                    what="multi-model data is no prefix",
                    value="nothing" if url is None else shown(url),
                    allowed="s3://bucket/prefix/",
                    way_out="name the prefix under which the archives lie, with the last /",
                )


@rule(
    "RH104", "a multi-model container has one compressed archive a model, never a ModelDataSource"
)
def multi_model_uncompressed(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            if text(container.get("Mode")) == "MultiModel" and "ModelDataSource" in container:
                compression = at(container, "ModelDataSource", "S3DataSource", "CompressionType")
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.ModelDataSource",
                    what="a multi-model endpoint takes no ModelDataSource, uncompressed or not",
                    value=f"CompressionType {shown(compression)}",
                    allowed="ModelDataUrl with one .tar.gz a model",
                    way_out="publish archives and name their prefix in ModelDataUrl",
                )


@rule("RH105", "a container's model data is named once, and has the form that it says")
def model_data_contradicts_itself(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            if surely_has(container, "ModelDataUrl") and surely_has(container, "ModelDataSource"):
                what = "the container names both ModelDataUrl and ModelDataSource"
                yield Problem(
                    resource=model.logical_id, path=path, what=what, way_out="keep one of them"
                )
            source = fields(at(container, "ModelDataSource", "S3DataSource"))
            kind, uri = text(source.get("S3DataType")), text(source.get("S3Uri"))
            if kind == "S3Prefix" and uri is not None and not uri.endswith("/"):
                where = f"{path}.ModelDataSource.S3DataSource.S3Uri"
                way_out = "end it with /, or say S3Object"
                yield Problem(
                    resource=model.logical_id,
                    path=where,
                    what="an S3Prefix ends with /",
                    value=uri,
                    way_out=way_out,
                )


@rule(
    "RH106",
    "a multi-model endpoint on a GPU runs Triton: no other container keeps that contract there",
)
def multi_model_gpu_without_triton(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        if not any(is_gpu(name) for _, name in variant.instance_types):
            continue
        for model in models_of(template, variant):
            for path, container in containers(model):
                uri = container.get("Image")
                if (
                    mode_of(model) != "MultiModel"
                    or not isinstance(uri, str)
                    or not is_known(uri)
                    or "triton" in uri.lower()
                ):
                    continue
                name = image_name(uri)
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.Image",
                    what="a multi-model endpoint on a GPU needs the Triton container",
                    value=uri,
                    allowed="sagemaker-tritonserver, or an image built from it",
                    way_out="serve with Triton, or on a CPU type",
                    severity="error" if name is not None and name.is_aws else "warning",
                )


@rule("RH107", "a multi-model endpoint on a GPU is on a type that AWS documents for it", "warning")
def multi_model_gpu_type(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        multi = any(mode_of(model) == "MultiModel" for model in models_of(template, variant))
        for path, name in variant.instance_types:
            facts = instance_facts(name)
            if multi and facts is not None and facts.is_gpu and not facts.multi_model_gpu:
                yield Problem(
                    resource=variant.config.logical_id,
                    path=path,
                    what="AWS documents no multi-model endpoint on this GPU type",
                    value=name,
                    allowed="ml.g4dn and ml.g5 sizes with one GPU",
                    way_out="take one of those, or try it and acknowledge this with what you saw",
                )


@rule("RH108", "a model's container has no way out to the network", "warning")
def network_isolation_off(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        isolated = model.properties.get("EnableNetworkIsolation", False)
        if boolean(isolated) is False:
            yield Problem(
                resource=model.logical_id,
                path="EnableNetworkIsolation",
                what="network isolation is off",
                value="nothing, which is false"
                if "EnableNetworkIsolation" not in model.properties
                else "false",
                allowed="true",
                way_out="switch it on; a container that must reach a service is acknowledged with the reason",
            )


@rule("RH109", "an image is named by an immutable tag or a digest", "warning")
def mutable_image(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            uri = text(container.get("Image"))
            name = None if uri is None else image_name(uri)
            if name is not None and name.digest is None and name.tag in (None, "latest"):
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.Image",
                    what="the image may change under this name, and a new instance would run another",
                    value=uri,
                    way_out="name a tag that is never moved, or a digest",
                )


@rule(
    "RH110",
    "names of models and endpoint configs derive from content, since any change replaces them",
    "warning",
)
def fixed_name_of_replaceable(template: Template) -> Iterator[Problem]:
    for named, kind in (
        ("ModelName", MODEL),
        ("EndpointConfigName", "AWS::SageMaker::EndpointConfig"),
    ):
        for resource in template.of_type(kind):
            name = text(resource.properties.get(named))
            if name is not None and CONTENT_NAME.search(name) is None:
                yield Problem(
                    resource=resource.logical_id,
                    path=named,
                    what="the name is fixed, so that CloudFormation refuses the next change",
                    value=name,
                    way_out=f"leave {named} out, or end it with a digest of the properties",
                )


@rule("RH111", "a container's environment keeps SageMaker's limits")
def environment_too_large(template: Template) -> Iterator[Problem]:
    for model in template.of_type(MODEL):
        for path, container in containers(model):
            variables = fields(container.get("Environment"))
            if len(variables) > MOST_VARIABLES:
                given, allowed = f"{len(variables)} variables", f"at most {MOST_VARIABLES}"
                what = "the environment has too many variables"
                yield Problem(
                    resource=model.logical_id,
                    path=f"{path}.Environment",
                    what=what,
                    value=given,
                    allowed=allowed,
                    way_out="drop some",
                )
            for key, value in variables.items():
                if (
                    isinstance(value, str)
                    and is_known(value)
                    and len(value.encode()) > LONGEST_VARIABLE
                ):
                    given, allowed = (
                        f"{len(value.encode())} bytes",
                        f"at most {LONGEST_VARIABLE} bytes",
                    )
                    where, what = f"{path}.Environment.{key}", "the variable is too long"
                    yield Problem(
                        resource=model.logical_id,
                        path=where,
                        what=what,
                        value=given,
                        allowed=allowed,
                        way_out="shorten it",
                    )
