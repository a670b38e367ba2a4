"""Images of endpoints and builders: what each holds, starts from, and whom it rolls."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from onboarding import resolve
from onboarding.environment_spec import ImagesSpec, ServingImage
from onboarding.platform import instance_types, serving_platforms
from onboarding.tree import read_tree
from roundhouse_cdk.hosting import content_name
from stacks.endpoint_stack import endpoint_template
from stacks.engine_capacity import engine_capacity
from stacks.images import (
    DOCKERFILES,
    build_arguments,
    image_tag,
    image_tags,
    image_uris,
    needed_images,
    pinned_images,
    read_image_files,
    serving_image,
    serving_images,
)
from stacks.rollout import COMPILING_SECONDS, variant_timeouts
from tests.synth.deployments import environment, with_locks, with_targets
from tests.unit.onboarding.test_deployments import with_rival
from tests.unit.roundhouse.engines import copied_tree, entry_for, with_entry

pytestmark = pytest.mark.unit


def test_content_name_follows_content_and_not_order():
    assert content_name("dev-a", {"x": 1, "y": [2]}) == content_name("dev-a", {"y": [2], "x": 1})
    assert content_name("dev-a", {"x": 1}) != content_name("dev-a", {"x": 2})


def test_content_name_is_trimmed_to_what_sagemaker_allows():
    name = content_name("dev-" + "a" * 45 + "-bcdefghijklmnop", {})
    assert len(name) <= 63 and "--" not in name


def test_image_tag_follows_paths_bytes_and_base():
    tag = image_tag({"a": b"1", "b": b"2"}, "base:1")
    assert tag == image_tag({"b": b"2", "a": b"1"}, "base:1")
    swapped = image_tag({"a": b"2", "b": b"1"}, "base:1")
    rebased = image_tag({"a": b"1", "b": b"2"}, "base:2")
    assert len({tag, swapped, rebased, image_tag({"a": b"1"}, "base:1")}) == 4


def test_base_image_matters_only_to_images_made_from_it():
    files = {image: {"f": b""} for image in DOCKERFILES}
    before, after = image_tags(files, "base:1"), image_tags(files, "base:2")
    assert {image for image in before if before[image] != after[image]} == {
        "triton",
        "python-server-gpu",
        "python-server-gpu-baseline",
        "builder-gpu",
    }


def test_image_files_are_the_dockerfile_and_what_it_copies(tmp_path):
    copies = (
        "COPY --chmod=755 container/server onboarding/a.py \\\n    /opt/\n"
        "COPY requirements/bindings-${TENSORRT}.txt /opt/\nCOPY --from=compile stacks/b.py /opt/\n"
    )
    for name in (
        "container/server/http/a.py",
        "container/server/__pycache__/a.pyc",
        "onboarding/a.py",
        "requirements/bindings-11.txt",
        "requirements/server.txt",
        "stacks/b.py",
        "container/Dockerfile.server",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(copies if "Dockerfile" in name else name)
    files = read_image_files(tmp_path)
    assert set(files["python-server"]) == {
        "container/Dockerfile.server",
        "container/server/http/a.py",
        "onboarding/a.py",
        "requirements/bindings-11.txt",
    }
    # A commit of before the image.
    assert files["triton"] == {}


PIN, DIGEST = "0" * 20, f"sha256:{'d' * 64}"
CONFIG, MODEL = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    """Two endpoints or more that run the same image."""
    tree = read_tree(copied_tree(tmp_path_factory.mktemp("tree")))
    return [
        with_targets(item, lambda target: with_entry(target, entry_for(item, target)))  # noqa: B023
        for item in resolve.deployments(tree, "dev")
    ]


def pinned(deployments, *names, **pin):
    """The deployments with every serving image pinned, but those of some endpoints."""
    pins = {image: {"tag": PIN, **pin} for image in get_args(ServingImage)}
    images = ImagesSpec.model_validate({"pinned": pins, "except": names})
    spec = deployments[0].environment.model_copy(update={"images": images})
    return [replace(item, environment=spec) for item in deployments]


def resources(deployments, version, kind):
    """The resources of one type of each endpoint, by name, at a version of the code."""
    uris = image_uris(deployments[0].environment, dict.fromkeys(DOCKERFILES, version))
    return {
        item.name: [
            resource["Properties"]
            for resource in endpoint_template(item, uris)["Resources"].values()
            if resource["Type"] == kind
        ]
        for item in deployments
    }


def rolled(deployments):
    """The endpoints that get another endpoint config by another version of the code."""
    before, after = (resources(deployments, version, CONFIG) for version in ("1", "2"))
    return {name for name in before if before[name] != after[name]}


def test_code_rolls_every_endpoint_that_pins_no_image(deployments):
    names = {item.name for item in deployments}
    assert len(names) > 1 and rolled(deployments) == names
    assert rolled(pinned(deployments)) == set()
    first = deployments[0].name
    assert rolled(pinned(deployments, first)) == {first}


def test_model_names_the_digest_where_the_pin_has_one(deployments):
    for pin, reference in (({}, f":{PIN}"), ({"digest": DIGEST}, f"@{DIGEST}")):
        for models in resources(pinned(deployments, **pin), "1", MODEL).values():
            for model in models:
                assert model["PrimaryContainer"]["Image"].endswith(reference)


def test_pinned_image_is_not_built_from_the_code(deployments):
    platform = serving_platforms()[deployments[0].environment.platform]
    serving = set(needed_images(platform, deployments)) & set(get_args(ServingImage))
    assert serving
    stays = pinned(deployments)
    assert not set(needed_images(platform, stays)) & set(get_args(ServingImage))
    assert set(pinned_images(stays)) == serving and pinned_images(deployments) == {}
    assert set(needed_images(platform, pinned(deployments, deployments[0].name))) >= serving


CPU = instance_types()["ml.c7i.large"]


@pytest.fixture
def deployment(tmp_path):
    (one,) = resolve.deployments(with_rival(tmp_path, "pytorch-compile"), "cloud", only=["example"])
    return one


def test_variants_run_the_images_of_their_runtimes(deployment):
    assert serving_images(deployment) == ("triton", "python-server-gpu-baseline")
    rival = deployment.variants[1]
    on_cpu = replace(
        rival.pools[0],
        instance_type=CPU,
        targets=tuple(replace(item, instance_type=CPU) for item in rival.targets),
    )
    assert serving_image("python", on_cpu) == "python-server-baseline"


def test_plans_alone_need_the_gpu_builders_image(deployment):
    platform = serving_platforms()["triton-26.05"]
    alone = replace(deployment, variants=deployment.variants[1:])
    assert "builder-gpu" in needed_images(platform, [deployment])
    assert needed_images(platform, [alone]) == ("builder-cpu", "python-server-gpu-baseline")


@pytest.mark.parametrize(
    ("image", "argument"),
    [("python-server-baseline", "TORCH_INDEX"), ("python-server-gpu-baseline", "TRITON_IMAGE")],
)
def test_images_with_torch_start_from_python_and_from_the_platform(image, argument):
    arguments = build_arguments(environment("dev"), serving_platforms()["triton-26.05"], image)
    assert argument in arguments
    assert image in DOCKERFILES


def test_server_that_compiles_has_half_an_hour_to_start(deployment):
    own, rival = deployment.variants
    assert variant_timeouts(deployment, rival)[1] == COMPILING_SECONDS
    assert variant_timeouts(deployment, own)[1] < COMPILING_SECONDS


def test_benchmark_of_the_builders_cpu_gives_no_capacity_of_a_gpu(deployment):
    locked = with_locks(deployment)
    rival = locked.variants[1].targets[0]
    reason = engine_capacity(locked, rival)
    assert isinstance(reason, str)
    assert "was not timed by pytorch-compile; measure it on ml.g5.xlarge" in reason
