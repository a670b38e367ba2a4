"""Rules of environments: each alone, and several side by side."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

from onboarding.dataset import is_inside
from onboarding.environment_spec import (
    PLATFORM_IMAGES,
    EnvironmentSpec,
    GithubSpec,
    GitlabSpec,
)
from onboarding.environment_view import SpecFiles, adapter_components, own_endpoint
from onboarding.fault import Fault, comma_list
from onboarding.platform import aws_partition, host_images, serving_platforms
from onboarding.signature import SignatureFault, parse_public_key
from onboarding.validation import Checked

Environment = Checked[EnvironmentSpec]
Environments = Mapping[str, Environment]


def platform_is_known(environment: Environment, root: Path) -> Iterator[Fault]:
    """A platform that has a row, so that its TensorRT is known, and images that start from it."""
    platform, known = environment.spec.platform, serving_platforms()
    if platform not in known:
        yield environment.at("platform").unknown(
            "unknown platform", platform, known, "choose one of these"
        )
    for image, pin in environment.spec.images.pinned.items():
        place = environment.at(("images", "pinned", image))
        if image in PLATFORM_IMAGES and pin.platform != platform:
            yield place.fault(
                "the pinned image starts from another serving platform than the environment's"
                if pin.platform is not None
                else "the pinned image does not name its serving platform",
                value=pin.platform,
                allowed=platform,
                way_out="pin an image of this platform (`roundhouse build --images` shows them), "
                "or none",
            )
        elif image not in PLATFORM_IMAGES and pin.platform is not None:
            yield place.fault(
                "this image starts from no serving platform",
                value=pin.platform,
                way_out="leave `platform` out",
            )


def host_image_is_known(environment: Environment, root: Path) -> Iterator[Fault]:
    """A host image that has a row, so that its driver is known."""
    name, known = environment.spec.inference_ami_version, host_images()
    if name is not None and name not in known:
        yield environment.at("inference_ami_version").unknown(
            "unknown host image", name, known, "choose one of these"
        )


def locks_lie_inside(environment: Environment, root: Path) -> Iterator[Fault]:
    """Locks are part of the repository."""
    if not is_inside(root, environment.spec.locks):
        yield environment.fault(
            "locks",
            "lies outside the onboarding root",
            way_out="name a folder under it, such as models",
        )


def network_has_subnets_and_routes(environment: Environment, root: Path) -> Iterator[Fault]:
    """SageMaker hosting asks for two availability zones; the S3 endpoint is entered in routes."""
    network = environment.spec.network
    if network is not None and len(network.subnet_ids) < 2:
        yield environment.at("network.subnet_ids").fault(
            "one subnet is too few: SageMaker places endpoints into two at least",
            value=", ".join(network.subnet_ids),
            way_out="add a subnet of another availability zone",
        )
    if network is not None and network.vpc_endpoints and not network.route_table_ids:
        yield environment.at("network.vpc_endpoints").fault(
            "'vpc_endpoints' needs 'route_table_ids', and there is none",
            way_out="name the route tables of the subnets, or leave vpc_endpoints out",
        )


def arns_are_of_the_account(environment: Environment, root: Path) -> Iterator[Fault]:
    """A key (S3 takes no alias), a policy or AWS's own, a fleet: of this account and region."""
    spec = environment.spec
    region, arn = re.escape(spec.region), f"arn:{aws_partition(spec.region)}:"
    for key, pattern, form in (
        ("kms_key_arn", rf"kms:{region}:[0-9]{{12}}:key/[A-Za-z0-9-]+",
         f"kms:{spec.region}:ACCOUNT:key/ID"),
        ("permissions_boundary_arn", rf"iam::({spec.account}|aws):policy/[\w+=,.@/-]+",
         f"iam::{spec.account}:policy/NAME"),
        ("gpu_fleet_arn", rf"codebuild:{region}:{spec.account}:fleet/[\w-]+:[0-9a-f-]+",
         f"codebuild:{spec.region}:{spec.account}:fleet/NAME:ID"),
    ):  # fmt: skip
        given = getattr(spec, key)
        if given is not None and not re.fullmatch(f"{arn}{pattern}", given):
            yield environment.fault(
                key,
                "is no such resource of this environment's account and region",
                allowed=f"{arn}{form}",
                way_out="copy it from the account, or correct account and region",
            )


def signers_are_keys(environment: Environment, root: Path) -> Iterator[Fault]:
    """Keys that a server can read: one that it cannot would stop every container."""
    for index, signer in enumerate(environment.spec.trusted_signers):
        try:
            parse_public_key(signer)
        except SignatureFault as fault:
            yield environment.at(f"trusted_signers[{index}]").fault(
                f"a key of 'trusted_signers' {fault}",
                value=f"{signer[:40]}…" if len(signer) > 40 else signer,
                way_out="copy the key's PublicKey whole",
            )


def oidc_provider_is_the_forges(environment: Environment, root: Path) -> Iterator[Fault]:
    """The provider of one forge in this account; its ARN holds no more than that."""
    spec = environment.spec
    if spec.github is not None and spec.gitlab is not None:
        yield environment.at("gitlab").fault(
            "names a second forge beside 'github'",
            allowed="one of both: each role has one name",
            way_out="take one of them out",
        )
    arn = f"arn:{aws_partition(spec.region)}:iam::{spec.account}:oidc-provider"
    for key, noun in (("github", "GitHub"), ("gitlab", "GitLab")):
        forge: GithubSpec | GitlabSpec | None = getattr(spec, key)
        given = None if forge is None else forge.oidc_provider_arn
        if forge is not None and given is not None and given != f"{arn}/{forge.issuer}":
            yield environment.at(f"{key}.oidc_provider_arn").fault(
                f"is not {noun}'s OIDC provider in this account",
                value=given,
                allowed=f"{arn}/{forge.issuer}",
                way_out="correct it, or leave it out, and the access stack makes the provider",
            )


def source_keys_are_of_the_region(environment: Environment, root: Path) -> Iterator[Fault]:
    """S3 decrypts in the bucket's region, and roles may use a key through S3 there alone."""
    for index, bucket in enumerate(environment.spec.source_buckets):
        yield from _key_faults(
            environment,
            f"source_buckets[{index}].kms_key_arn",
            bucket.kms_key_arn,
            "the key of a source bucket is of another region than the environment",
            "copy the sources to a bucket of this region",
        )


def secrets_are_whole_arns_of_the_region(environment: Environment, root: Path) -> Iterator[Fault]:
    """Roles name a secret exactly, and builds ask Secrets Manager in their own region."""
    spec = environment.spec
    form = f"arn:{aws_partition(spec.region)}:secretsmanager:{spec.region}:"
    for path, secret in spec.source_secrets.secrets.items():
        key, subject = f"source_secrets.{path}", f"the secret of 'source_secrets.{path}'"
        pattern = rf"{re.escape(form)}([0-9]{{12}}):secret:.+-[A-Za-z0-9]{{6}}"
        found = re.fullmatch(pattern, secret.secret_arn)
        if found is None:
            yield environment.at(f"{key}.secret_arn").fault(
                f"{subject} is no whole ARN of this region",
                value=secret.secret_arn,
                allowed=f"{form}ACCOUNT:secret:NAME-XXXXXX",
                way_out="copy the ARN from the secret's page; a secret of another region can be "
                "replicated to this one",
            )
        elif found[1] != spec.account and secret.kms_key_arn is None:
            yield environment.at(f"{key}.secret_arn").fault(
                f"{subject} is of another account, and no key is named",
                value=secret.secret_arn,
                allowed="a secret that a customer key encrypts, with its `kms_key_arn`: other "
                "accounts cannot use aws/secretsmanager",
                way_out="name the key, or make the secret in the environment's account",
            )
        yield from _key_faults(
            environment,
            f"{key}.kms_key_arn",
            secret.kms_key_arn,
            f"the key of 'source_secrets.{path}' is of another region than the environment",
            "name the key that encrypts the secret in this region",
        )


def _key_faults(
    environment: Environment, path: str, key: str | None, what: str, way_out: str
) -> Iterator[Fault]:
    region = environment.spec.region
    if key is not None and key.split(":")[3] != region:
        yield environment.at(path).fault(
            what, value=key, allowed=f"a key of {region}", way_out=way_out
        )


def environments_do_not_meet(files: SpecFiles, environments: Environments) -> Iterator[Fault]:
    """`<environment>-<name>` is one endpoint or component of an account and region."""
    own = (name for name, model in files.models.items() if own_endpoint(model) is not None)
    adapters = (name for name, _ in adapter_components(files.generators))
    every = (*files.endpoints, *own, *files.generators, *adapters)
    names = {name.lower(): name for name in every}
    for file, other in permutations(environments.values(), 2):
        longer, shorter = file.spec, other.spec
        if (longer.account, longer.region) != (shorter.account, shorter.region):
            continue
        head, _, between = longer.name.partition(f"{shorter.name}-")
        met = (
            [name for name in names.values() if f"{between}-{name}".lower() in names]
            if not head and between
            else []
        )
        for name in met[:1]:
            other_name = names[f"{between}-{name}".lower()]
            yield file.at("name").fault(
                f"its endpoint of {name} is called like environment {shorter.name}'s of "
                f"{other_name}",
                value=f"{longer.name}-{name}",
                way_out="rename the environment, or give it an account or a region of its own",
            )


def promotions_have_a_source(files: SpecFiles, environments: Environments) -> Iterator[Fault]:
    """An environment promotes from another one that has a file, and never in a circle."""
    for name, environment in environments.items():
        source = environment.spec.promotes_from
        if source is None:
            continue
        others = [other for other in environments if other != name]
        place = environment.at("promotes_from")
        if source == name:
            yield place.fault(
                "'promotes_from' names the environment itself",
                value=source,
                allowed=comma_list(others),
                way_out="name the environment before it, or leave it out",
            )
        elif source not in environments:
            if f"environments/{source}" not in files.unread:
                yield place.unknown(
                    "'promotes_from' names no environment",
                    source,
                    others,
                    f"add environments/{source}.yaml",
                )
        elif name in _promotion_chain(environments, source):
            chain = " → ".join((name, *_promotion_chain(environments, source)))
            yield place.fault(
                "'promotes_from' leads back to the environment",
                value=chain,
                way_out="let the first environment build, and leave its promotes_from out",
            )


def _promotion_chain(environments: Environments, name: str) -> list[str]:
    """Return the environments that one promotes from, itself first, each once."""
    chain: list[str] = []
    source: str | None = name
    while source is not None and source in environments and source not in chain:
        chain.append(source)
        source = environments[source].spec.promotes_from
    return chain


def lock_folders_are_distinct(files: SpecFiles, environments: Environments) -> Iterator[Fault]:
    """An engine's key holds no environment: of two builds under one key the lock keeps the last."""
    first: dict[str, str] = {}
    for environment in environments.values():
        folder = posixpath.normpath(environment.spec.locks)
        other = first.setdefault(folder, environment.document.file)
        if other != environment.document.file:
            name = environment.document.file.rpartition("/")[2].removesuffix(".yaml")
            yield environment.at("locks").fault(
                f"'locks' is the folder of {other} too, so each build would replace the "
                "other's locks",
                value=environment.spec.locks,
                allowed="a folder of the environment's own",
                way_out=f"write `locks: locks/{name}`, and `promotes_from:` to receive its engines",
            )


def accounts_have_one_oidc_provider(
    files: SpecFiles, environments: Environments
) -> Iterator[Fault]:
    """IAM has one provider of a URL; of an account's environments, one access stack makes it."""
    makers: dict[tuple[str, str], str] = {}
    for environment in environments.values():
        forge, account = environment.spec.forge, environment.spec.account
        if forge is None or forge.oidc_provider_arn is not None:
            continue
        maker = makers.setdefault((account, forge.issuer), environment.document.file)
        if maker != environment.document.file:
            arn = f"arn:{aws_partition(environment.spec.region)}:iam::{account}:oidc-provider"
            key, noun = ("github", "GitHub") if environment.spec.github else ("gitlab", "GitLab")
            yield environment.at(key).fault(
                f"{maker} makes {noun}'s OIDC provider in this account, which takes one",
                value=account,
                way_out=f"write `oidc_provider_arn: {arn}/{forge.issuer}`",
            )


RULES = (
    platform_is_known,
    host_image_is_known,
    locks_lie_inside,
    network_has_subnets_and_routes,
    arns_are_of_the_account,
    signers_are_keys,
    oidc_provider_is_the_forges,
    source_keys_are_of_the_region,
    secrets_are_whole_arns_of_the_region,
)
FILE_RULES = (
    environments_do_not_meet,
    lock_folders_are_distinct,
    promotions_have_a_source,
    accounts_have_one_oidc_provider,
)
