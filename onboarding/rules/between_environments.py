"""Environments beside each other: names, lock folders and promotions that do not collide."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import permutations

from onboarding.aws_limits import GITHUB_ISSUER
from onboarding.environment_spec import EnvironmentSpec
from onboarding.environment_view import SpecFiles, adapter_components, own_endpoint
from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.platform import aws_partition
from onboarding.validation import Checked


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
                yield place.fault(
                    "'promotes_from' names no environment",
                    value=source,
                    allowed=comma_list(others),
                    way_out=did_you_mean(source, others, f"add environments/{source}.yaml"),
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
    makers: dict[str, str] = {}
    for environment in files.environments.values():
        if not {"account", "github"} <= environment.sections:
            continue
        github, account = environment.spec.github, environment.spec.account
        if github is None or github.oidc_provider_arn is not None:
            continue
        maker = makers.setdefault(account, environment.document.file)
        if maker != environment.document.file:
            arn = f"arn:{aws_partition(environment.spec.region)}:iam::{account}:oidc-provider"
            yield environment.document.at("github").fault(
                f"{maker} makes GitHub's OIDC provider in this account, which takes one",
                value=account,
                way_out=f"write `oidc_provider_arn: {arn}/{GITHUB_ISSUER}`",
            )


def _place(environment: EnvironmentSpec) -> tuple[str, str]:
    return environment.account, environment.region
