"""Rules of environments: each alone, and several side by side."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from itertools import permutations

from onboarding.environment_spec import (
    PLATFORM_IMAGES,
    EnvironmentSpec,
    GithubSpec,
    GitlabSpec,
)
from onboarding.environment_view import SpecFiles, adapter_components, own_endpoint
from onboarding.fault import Fault
from onboarding.nearest import comma_list
from onboarding.platform import aws_partition, host_images, serving_platforms
from onboarding.rules.rule import EnvironmentCase, rule
from onboarding.signature import SignatureFault, parse_public_key
from onboarding.validation import Checked


@rule("platform")
def platform_is_known(case: EnvironmentCase) -> Iterator[Fault]:
    """A platform that has a row, so that its TensorRT is known."""
    name, known = case.spec.platform, serving_platforms()
    if name not in known:
        yield case.document.at("platform").unknown(
            "unknown platform", name, known, "choose one of these"
        )


@rule("inference_ami_version")
def host_image_is_known(case: EnvironmentCase) -> Iterator[Fault]:
    """A host image that has a row, so that its driver is known."""
    name, known = case.spec.inference_ami_version, host_images()
    if name is not None and name not in known:
        yield case.document.at("inference_ami_version").unknown(
            "unknown host image", name, known, "choose one of these"
        )


@rule("images", "platform")
def pinned_images_are_of_the_platform(case: EnvironmentCase) -> Iterator[Fault]:
    """What compiles an engine is what serves it: an image of another platform loads none."""
    for image, pin in case.spec.images.pinned.items():
        place = case.document.at("images", "pinned", image)
        if image in PLATFORM_IMAGES and pin.platform != case.spec.platform:
            yield place.fault(
                "the pinned image starts from another serving platform than the environment's"
                if pin.platform is not None
                else "the pinned image does not name its serving platform",
                value=pin.platform,
                allowed=case.spec.platform,
                way_out="pin an image of this platform (`roundhouse build --images` shows them), "
                "or none",
            )
        elif image not in PLATFORM_IMAGES and pin.platform is not None:
            yield place.fault(
                "this image starts from no serving platform",
                value=pin.platform,
                way_out="leave `platform` out",
            )


@rule("locks")
def locks_lie_inside(case: EnvironmentCase) -> Iterator[Fault]:
    """Locks are part of the repository."""
    if not case.is_inside_root(case.spec.locks):
        yield case.document.at("locks").fault(
            "'locks' lies outside the onboarding root",
            value=case.spec.locks,
            way_out="name a folder under it, such as models",
        )


@rule("network")
def endpoints_have_two_subnets(case: EnvironmentCase) -> Iterator[Fault]:
    """SageMaker hosting asks for two availability zones, however few the instances."""
    network = case.spec.network
    if network is not None and len(network.subnet_ids) < 2:
        yield case.document.at("network", "subnet_ids").fault(
            "one subnet is too few: SageMaker places endpoints into two at least",
            value=", ".join(network.subnet_ids),
            way_out="add a subnet of another availability zone",
        )


@rule("network")
def vpc_endpoints_have_route_tables(case: EnvironmentCase) -> Iterator[Fault]:
    """The S3 endpoint is an entry in route tables: without one no engine would arrive."""
    network = case.spec.network
    if network is not None and network.vpc_endpoints and not network.route_table_ids:
        yield case.document.at("network", "vpc_endpoints").fault(
            "'vpc_endpoints' needs 'route_table_ids', and there is none",
            way_out="name the route tables of the subnets, or leave vpc_endpoints out",
        )


@rule("kms_key_arn", "account", "region")
def key_is_usable(case: EnvironmentCase) -> Iterator[Fault]:
    """A key's own ARN in the environment's region: S3 and policies take no alias."""
    pattern = rf"kms:{_region(case)}:[0-9]{{12}}:key/[A-Za-z0-9-]+"
    yield from _arn_fault(case, "kms_key_arn", pattern, "kms:{region}:ACCOUNT:key/ID")


@rule("permissions_boundary_arn", "account", "region")
def boundary_is_a_policy(case: EnvironmentCase) -> Iterator[Fault]:
    """A policy of this account, or one of AWS's own."""
    pattern = rf"iam::({case.spec.account}|aws):policy/[\w+=,.@/-]+"
    yield from _arn_fault(case, "permissions_boundary_arn", pattern, "iam::{account}:policy/NAME")


@rule("gpu_fleet_arn", "account", "region")
def fleet_is_of_this_account(case: EnvironmentCase) -> Iterator[Fault]:
    """A CodeBuild fleet of this account and region."""
    pattern = rf"codebuild:{_region(case)}:{case.spec.account}:fleet/[\w-]+:[0-9a-f-]+"
    yield from _arn_fault(
        case, "gpu_fleet_arn", pattern, "codebuild:{region}:{account}:fleet/NAME:ID"
    )


@rule("trusted_signers")
def signers_are_keys(case: EnvironmentCase) -> Iterator[Fault]:
    """Keys that a server can read: one that it cannot would stop every container."""
    for index, signer in enumerate(case.spec.trusted_signers):
        place = case.document.at("trusted_signers", index)
        try:
            parse_public_key(signer)
        except SignatureFault as fault:
            yield place.fault(
                f"a key of 'trusted_signers' {fault}",
                value=f"{signer[:40]}…" if len(signer) > 40 else signer,
                way_out="copy the key's PublicKey whole",
            )


@rule("github", "gitlab", "account", "region")
def oidc_provider_is_the_forges(case: EnvironmentCase) -> Iterator[Fault]:
    """The provider of one forge in this account; its ARN holds no more than that."""
    if case.spec.github is not None and case.spec.gitlab is not None:
        yield case.document.at("gitlab").fault(
            "names a second forge beside 'github'",
            allowed="one of both: each role has one name",
            way_out="take one of them out",
        )
    partition, account = aws_partition(case.spec.region), case.spec.account
    for key, noun in (("github", "GitHub"), ("gitlab", "GitLab")):
        forge: GithubSpec | GitlabSpec | None = getattr(case.spec, key)
        if forge is None or forge.oidc_provider_arn is None:
            continue
        own = f"arn:{partition}:iam::{account}:oidc-provider/{forge.issuer}"
        if forge.oidc_provider_arn != own:
            yield case.document.at(key, "oidc_provider_arn").fault(
                f"is not {noun}'s OIDC provider in this account",
                value=forge.oidc_provider_arn,
                allowed=own,
                way_out="correct it, or leave it out, and the access stack makes the provider",
            )


@rule("alarm_slack", "region")
def alarm_slack_is_in_the_commercial_partition(case: EnvironmentCase) -> Iterator[Fault]:
    """Amazon Q Developer in chat applications is of the partition `aws` alone."""
    slack = case.spec.alarm_slack
    if slack is not None and aws_partition(case.spec.region) != "aws":
        yield case.document.at("alarm_slack").fault(
            "Amazon Q Developer in chat applications is not in this region's partition",
            value=case.spec.region,
            allowed="a region of the partition aws",
            way_out="leave alarm_slack out, and use alarm_https or alarm_email",
        )


def _region(case: EnvironmentCase) -> str:
    return re.escape(case.spec.region)


def _arn_fault(case: EnvironmentCase, name: str, pattern: str, form: str) -> Iterator[Fault]:
    """Yield a fault unless a setting is left out or names a resource of the region's partition."""
    given = getattr(case.spec, name)
    partition = aws_partition(case.spec.region)
    if given is not None and not re.fullmatch(f"arn:{partition}:{pattern}", given):
        shown = form.format(region=case.spec.region, account=case.spec.account)
        yield case.document.at(name).fault(
            f"'{name}' is no such resource of this environment's account and region",
            value=given,
            allowed=f"arn:{partition}:{shown}",
            way_out="copy it from the account, or correct account and region",
        )


def environments_do_not_meet(files: SpecFiles) -> Iterator[Fault]:
    """`<environment>-<name>` is one endpoint or component of an account and region."""
    own = (name for name, model in files.models.items() if own_endpoint(model) is not None)
    adapters = (name for name, _ in adapter_components(files.generators))
    every = (*files.endpoints, *own, *files.generators, *adapters)
    names = {name.lower(): name for name in every}
    for file, other in permutations(files.environments.values(), 2):
        longer, shorter = file.spec, other.spec
        if not {"name", "account", "region"} <= file.sections & other.sections or _place(
            longer
        ) != _place(shorter):
            continue
        head, _, between = longer.name.partition(f"{shorter.name}-")
        met = (
            [name for name in names.values() if f"{between}-{name}".lower() in names]
            if not head and between
            else []
        )
        for name in met[:1]:
            other_name = names[f"{between}-{name}".lower()]
            yield file.document.at("name").fault(
                f"its endpoint of {name} is called like environment {shorter.name}'s of "
                f"{other_name}",
                value=f"{longer.name}-{name}",
                way_out="rename the environment, or give it an account or a region of its own",
            )


def promotions_have_a_source(files: SpecFiles) -> Iterator[Fault]:
    """An environment promotes from another one that has a file, and never in a circle."""
    for name, environment in files.environments.items():
        source = _promotes_from(environment)
        if source is None:
            continue
        others = [other for other in files.environments if other != name]
        place = environment.document.at("promotes_from")
        if source == name:
            yield place.fault(
                "'promotes_from' names the environment itself",
                value=source,
                allowed=comma_list(others),
                way_out="name the environment before it, or leave it out",
            )
        elif source not in files.environments:
            if f"environments/{source}" not in files.unread:
                yield place.unknown(
                    "'promotes_from' names no environment",
                    source,
                    others,
                    f"add environments/{source}.yaml",
                )
        elif name in _promotion_chain(files, source):
            chain = " → ".join((name, *_promotion_chain(files, source)))
            yield place.fault(
                "'promotes_from' leads back to the environment",
                value=chain,
                way_out="let the first environment build, and leave its promotes_from out",
            )


def _promotion_chain(files: SpecFiles, name: str) -> list[str]:
    """Return the environments that one promotes from, itself first, each once."""
    chain: list[str] = []
    source: str | None = name
    while source is not None and source in files.environments and source not in chain:
        chain.append(source)
        source = _promotes_from(files.environments[source])
    return chain


def _promotes_from(environment: Checked[EnvironmentSpec]) -> str | None:
    known = "promotes_from" in environment.sections
    return environment.spec.promotes_from if known else None


def lock_folders_are_distinct(files: SpecFiles) -> Iterator[Fault]:
    """An engine's key holds no environment: of two builds under one key the lock keeps the last."""
    first: dict[str, str] = {}
    for environment in files.environments.values():
        if "locks" not in environment.sections:
            continue
        folder = posixpath.normpath(environment.spec.locks)
        other = first.setdefault(folder, environment.document.file)
        if other != environment.document.file:
            name = environment.document.file.rpartition("/")[2].removesuffix(".yaml")
            yield environment.document.at("locks").fault(
                f"'locks' is the folder of {other} too, so each build would replace the "
                "other's locks",
                value=environment.spec.locks,
                allowed="a folder of the environment's own",
                way_out=f"write `locks: locks/{name}`, and `promotes_from:` to receive its engines",
            )


def accounts_have_one_oidc_provider(files: SpecFiles) -> Iterator[Fault]:
    """IAM has one provider of a URL; of an account's environments, one access stack makes it."""
    makers: dict[tuple[str, str], str] = {}
    for environment in files.environments.values():
        if not {"account", "github", "gitlab"} <= environment.sections:
            continue
        forge, account = environment.spec.forge, environment.spec.account
        if forge is None or forge.oidc_provider_arn is not None:
            continue
        maker = makers.setdefault((account, forge.issuer), environment.document.file)
        if maker != environment.document.file:
            arn = f"arn:{aws_partition(environment.spec.region)}:iam::{account}:oidc-provider"
            key, noun = ("github", "GitHub") if environment.spec.github else ("gitlab", "GitLab")
            yield environment.document.at(key).fault(
                f"{maker} makes {noun}'s OIDC provider in this account, which takes one",
                value=account,
                way_out=f"write `oidc_provider_arn: {arn}/{forge.issuer}`",
            )


def _place(environment: EnvironmentSpec) -> tuple[str, str]:
    return environment.account, environment.region
