"""Rules of SageMaker models: role, containers, model data, isolation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.aws_limits import ENVIRONMENT_VALUE_LENGTH, ENVIRONMENT_VARIABLE_COUNT
from template_rules.hosting import (
    MODEL,
    all_variants,
    containers,
    instance_facts,
    is_gpu,
    is_multi_model,
    models_of,
)
from template_rules.rule import resource_rule, template_rule
from template_rules.serving_images import image_name
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, boolean, fields, is_known, is_unknown, known_text

CONTENT_NAME = re.compile(r"[-.][0-9a-f]{6,64}$|[0-9]{8,}$")
VARIABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
REGISTRY = re.compile(
    r"\d{12}\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)/.+"
)


@resource_rule("E9100", "Model without ExecutionRoleArn", MODEL)
def model_without_role(model: Resource) -> Iterator[Problem]:
    """A model names the role that its container runs with."""
    if "ExecutionRoleArn" not in model.properties:
        what = "the model has no ExecutionRoleArn, and CreateModel refuses it"
        way_out = "name a role that may pull the image and read the model data"
        yield model.problem("ExecutionRoleArn", what, way_out)


@template_rule(
    "E9101", "Model without exactly one kind of container, or a container without an image"
)
def model_without_container(assembly: Assembly) -> Iterator[Problem]:
    """A model has a primary container or a list of containers, with an image each."""
    kinds = ("PrimaryContainer", "Containers")
    for model in assembly.of_type(MODEL):
        given = [kind for kind in kinds if model.properties.get(kind)]
        if len(given) != 1 and not any(is_unknown(model.properties[kind]) for kind in given):
            what = "a model has either PrimaryContainer or Containers"
            value = " and ".join(given) or "neither"
            yield model.problem("PrimaryContainer", what, "write exactly one of them", value=value)
        for path, container in containers(model):
            if not {"Image", "ModelPackageName"} & set(container):
                yield model.problem(path, "the container has no Image", "name one")


@resource_rule("E9103", "Multi-model container without an S3 prefix of archives", MODEL)
def multi_model_data(model: Resource) -> Iterator[Problem]:
    """A multi-model container takes compressed archives from an S3 prefix that ends with /."""
    for path, container in containers(model):
        if container.get("Mode") != "MultiModel":
            continue
        url = container.get("ModelDataUrl")
        if "ModelDataSource" in container:
            what = "a multi-model endpoint takes no ModelDataSource"
            way_out = "publish one .tar.gz a model and name their prefix in ModelDataUrl"
            yield model.problem(f"{path}.ModelDataSource", what, way_out)
        elif not is_unknown(url) and not str(url).endswith("/"):
            yield model.problem(
                f"{path}.ModelDataUrl",
                "multi-model data is not an S3 prefix",
                "name the prefix of the archives, with the last /",
                value="nothing" if url is None else url,
                allowed="s3://bucket/prefix/",
            )


@resource_rule(
    "E9105", "Model data named twice, or in a form that SageMaker does not unpack", MODEL
)
def single_model_data(model: Resource) -> Iterator[Problem]:
    """A single model's data is named once, as one .tar.gz or as a prefix that ends with /."""
    for path, container in containers(model):
        url = known_text(container.get("ModelDataUrl"))
        if {"ModelDataUrl", "ModelDataSource"} <= set(container):
            what = "the container has both ModelDataUrl and ModelDataSource"
            yield model.problem(path, what, "keep one of them")
        single = container.get("Mode", "SingleModel") == "SingleModel"
        if single and url is not None and not url.endswith(".tar.gz"):
            yield model.problem(
                f"{path}.ModelDataUrl",
                "SageMaker unpacks one gzip compressed tar archive only",
                "pack it so, or name files by ModelDataSource",
                value=url,
                allowed="s3://bucket/key.tar.gz",
            )
        source = fields(at(container, "ModelDataSource", "S3DataSource"))
        uri = known_text(source.get("S3Uri"))
        prefix = source.get("S3DataType") == "S3Prefix"
        if prefix and uri is not None and not uri.endswith("/"):
            place = f"{path}.ModelDataSource.S3DataSource.S3Uri"
            yield model.problem(
                place, "an S3Prefix ends with /", "end it with /, or say S3Object", value=uri
            )


@template_rule(
    "E9106",
    "Multi-model endpoint on a GPU without Triton, or on a type without support",
    source_url="https://docs.aws.amazon.com/sagemaker/latest/dg/multi-model-support.html",
)
def multi_model_on_gpu(assembly: Assembly) -> Iterator[Problem]:
    """A multi-model endpoint on a GPU runs Triton on a type that AWS documents for it."""
    for variant in all_variants(assembly):
        models = [model for model in models_of(assembly, variant) if is_multi_model(model)]
        types = [name for name in variant.instance_types if is_gpu(name)]
        for name in types if models else ():
            facts = instance_facts(name)
            if facts is not None and not facts.multi_model_gpu:
                yield variant.config.problem(
                    f"{variant.path}.InstanceType",
                    "AWS documents no multi-model endpoint on this GPU type",
                    "take one of those",
                    value=name,
                    allowed="ml.g4dn and ml.g5 sizes with one GPU",
                )
        for model in models if types else ():
            for path, container in containers(model):
                image = known_text(container.get("Image"))
                if image is not None and "triton" not in image.lower():
                    yield model.problem(
                        f"{path}.Image",
                        "a multi-model endpoint on a GPU needs the Triton container",
                        "serve with Triton, or on a CPU type",
                        value=image,
                        allowed="sagemaker-tritonserver, or an image built from it",
                    )


@resource_rule("E9108", "Model without network isolation", MODEL)
def network_isolation(model: Resource) -> Iterator[Problem]:
    """A model's container has no way out to the network."""
    if boolean(model.properties.get("EnableNetworkIsolation", False)) is False:
        yield model.problem(
            "EnableNetworkIsolation",
            "the container reaches the network",
            "set it, or suppress E9108 in the resource's cfn-lint metadata with the reason",
            allowed="true",
        )


@resource_rule("E9109", "Image outside ECR, of another region, or under a tag that moves", MODEL)
def image_reference(model: Resource) -> Iterator[Problem]:
    """A model's image is in ECR, in the stack's own region, by an immutable tag or a digest."""
    region = model.template.stack.region
    for path, container in containers(model):
        image = container.get("Image")
        if not isinstance(image, str) or not is_known(image.split("/")[0]):
            continue
        match = REGISTRY.fullmatch(image)
        place, vpc = f"{path}.Image", at(container, "ImageConfig", "RepositoryAccessMode")
        name = image_name(image)
        if match is None and vpc != "Vpc" and "/" in image:
            what = "SageMaker pulls images from ECR, or from a registry in the model's VPC"
            allowed = "account.dkr.ecr.region.amazonaws.com/repository:tag"
            yield model.problem(place, what, "push it to ECR", value=image, allowed=allowed)
        elif match is not None and region is not None and match["region"] != region:
            what = f"a model of {region} cannot pull an image of {match['region']}"
            yield model.problem(place, what, "name the repository of this region", value=image)
        elif match is not None and (match["suffix"] == "amazonaws.com.cn") != (
            match["region"].startswith("cn-")
        ):
            what = f"the registry's host does not belong to {match['region']}"
            yield model.problem(place, what, "write ${AWS::URLSuffix}", value=image)
        elif name is not None and name.digest is None and name.tag in (None, "latest"):
            what = "the image may change under this name"
            way_out = "name a tag that is never moved, or a digest"
            yield model.problem(place, what, way_out, value=image)


@template_rule("E9110", "Fixed name of a model or endpoint config")
def content_names(assembly: Assembly) -> Iterator[Problem]:
    """Names of models and endpoint configs derive from content, since any change replaces them."""
    kinds = {MODEL: "ModelName", "AWS::SageMaker::EndpointConfig": "EndpointConfigName"}
    for kind, key in kinds.items():
        for resource in assembly.of_type(kind):
            name = known_text(resource.properties.get(key))
            if name is not None and CONTENT_NAME.search(name) is None:
                what = "the name is fixed, so that CloudFormation refuses the next change"
                way_out = f"leave {key} out, or end it with a digest of the properties"
                yield resource.problem(key, what, way_out, value=name)


@resource_rule("E9111", "Container environment that CreateModel refuses", MODEL)
def container_environment(model: Resource) -> Iterator[Problem]:
    """A container's environment keeps SageMaker's limits of number, names and length."""
    for path, container in containers(model):
        variables = fields(container.get("Environment"))
        place = f"{path}.Environment"
        if len(variables) > ENVIRONMENT_VARIABLE_COUNT:
            yield model.problem(
                place,
                "the environment has too many variables",
                "remove some",
                value=len(variables),
                allowed=f"at most {ENVIRONMENT_VARIABLE_COUNT}",
            )
        for name, value in variables.items():
            if is_known(name) and VARIABLE.fullmatch(name) is None:
                what, allowed = "the variable's name", "letters, digits and _"
                yield model.problem(place, what, "rename it", value=name, allowed=allowed)
            size = len((known_text(value) or "").encode())
            if size > ENVIRONMENT_VALUE_LENGTH:
                yield model.problem(
                    f"{place}.{name}",
                    "the variable is too long",
                    "shorten it",
                    value=f"{size} bytes",
                    allowed=f"at most {ENVIRONMENT_VALUE_LENGTH} bytes",
                )
