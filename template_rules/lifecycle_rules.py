"""Rules of what is deleted by itself: objects of buckets, images of repositories."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from template_rules.finding import Problem
from template_rules.hosting import MODEL, containers
from template_rules.rule import rule, together_rule
from template_rules.template import Resource, Template
from template_rules.values import (
    at,
    boolean,
    fields,
    is_known,
    labels,
    masked,
    number,
    objects,
    shown,
    text,
)

BUCKET, REPOSITORY = "AWS::S3::Bucket", "AWS::ECR::Repository"
DOES = (
    *(
        "AbortIncompleteMultipartUpload",
        "ExpirationDate",
        "ExpirationInDays",
        "ExpiredObjectDeleteMarker",
    ),
    *(
        "NoncurrentVersionExpiration",
        "NoncurrentVersionExpirationInDays",
        "NoncurrentVersionTransition",
    ),
    *("NoncurrentVersionTransitions", "Transition", "Transitions"),
)
COLD = ("GLACIER", "DEEP_ARCHIVE")
INFREQUENT = ("STANDARD_IA", "ONEZONE_IA")


@rule("RH300", "a bucket's lifecycle rules are ones that S3 takes")
def ill_formed_lifecycle(template: Template) -> Iterator[Problem]:
    for bucket, path, each in _lifecycles(template):
        where = partial(Problem, resource=bucket.logical_id, path=path)
        others = [other for _, place, other in _lifecycles(template, bucket) if place < path]
        name = text(each.get("Id"))
        if name is not None and any(other.get("Id") == name for other in others):
            yield where(what="two rules have one Id", value=name, way_out="rename one")
        if not any(key in each for key in DOES) and not any(
            str(key).startswith("Fn::") for key in each
        ):
            yield where(
                what="the rule does nothing, and S3 refuses it",
                way_out="say what expires, or take it out",
            )
        tagged = "TagFilters" in each
        for key in ("AbortIncompleteMultipartUpload", "ExpiredObjectDeleteMarker"):
            if tagged and key in each:
                yield where(
                    what=f"S3 takes no {key} in a rule with TagFilters",
                    way_out="write a rule of its own for it",
                )
        if boolean(each.get("ExpiredObjectDeleteMarker")) and {
            "ExpirationInDays",
            "ExpirationDate",
        } & set(each):
            what = "S3 takes ExpiredObjectDeleteMarker and a day of expiration in one rule never"
            yield where(what=what, way_out="keep one of them")
        for what, value in _day_faults(each):
            yield where(what=what, value=value, way_out="change the days")


@together_rule("RH301", "no lifecycle takes away what a model serves")
def lifecycle_of_served(templates: Sequence[Template]) -> Iterator[tuple[Template, Problem]]:
    served = [
        (template, model, text(container.get("ModelDataUrl")) or "")
        for template in templates
        for model in template.of_type(MODEL)
        for _, container in containers(model)
    ]
    for template in templates:
        for bucket, path, each in _lifecycles(template):
            taken = _takes_away(each)
            if taken is None or "TagFilters" in each or text(each.get("Status")) != "Enabled":
                continue
            prefix = each.get("Prefix", "")
            for other, model, url in served:
                start = f"s3://{bucket.name}/{prefix}"
                same_place = template is other or template.stack.account in (
                    None,
                    other.stack.account,
                )
                if (
                    same_place
                    and isinstance(prefix, str)
                    and is_known(start)
                    and url.startswith(start)
                ):
                    what = f"the rule {taken} what model {model.logical_id} of {other.file} serves"
                    way_out = "narrow it by TagFilters or Prefix: a new instance could load nothing"
                    yield (
                        template,
                        Problem(
                            resource=bucket.logical_id,
                            path=path,
                            what=what,
                            value=url,
                            way_out=way_out,
                        ),
                    )


@rule("RH302", "a repository's lifecycle policy is one that ECR takes")
def ill_formed_image_lifecycle(template: Template) -> Iterator[Problem]:
    for repository in template.of_type(REPOSITORY):
        path = "LifecyclePolicy.LifecyclePolicyText"
        for what in _policy_faults(at(repository.properties, *path.split("."))):
            yield Problem(
                resource=repository.logical_id,
                path=path,
                what=what,
                way_out="change it as ECR's documentation says",
            )


@together_rule("RH303", "no lifecycle takes an image by its age that a model runs", "warning")
def image_taken_by_age(templates: Sequence[Template]) -> Iterator[tuple[Template, Problem]]:
    used = {
        masked(image).split("/", 1)[-1].split("@")[0].split(":")[0]
        for template in templates
        for model in template.of_type(MODEL)
        for _, container in containers(model)
        if isinstance(image := container.get("Image"), str)
        and is_known(image.split("/", 1)[-1])
        and "/" in image
    }
    for template in templates:
        for repository in template.of_type(REPOSITORY):
            if repository.name not in used:
                continue
            path = "LifecyclePolicy.LifecyclePolicyText"
            for _, each in (
                objects(fields(_read(at(repository.properties, *path.split("."))))["rules"])
                if _readable(repository)
                else ()
            ):
                selection = fields(each.get("selection"))
                if selection.get("countType") == "sinceImagePushed" and selection.get(
                    "tagStatus"
                ) in ("any", "tagged"):
                    what = (
                        f"images of {selection['tagStatus']} tags go by age, and a model runs one"
                    )
                    way_out = "keep a number of images instead: a new instance could pull none"
                    value = f"{selection.get('countNumber')} days"
                    yield (
                        template,
                        Problem(
                            resource=repository.logical_id,
                            path=path,
                            what=what,
                            value=value,
                            way_out=way_out,
                        ),
                    )


def _readable(repository: Resource) -> bool:
    given = at(repository.properties, "LifecyclePolicy", "LifecyclePolicyText")
    return isinstance(fields(_read(given)).get("rules"), list)


def _lifecycles(
    template: Template, only: Resource | None = None
) -> Iterator[tuple[Resource, str, dict[str, Any]]]:
    for bucket in template.of_type(BUCKET):
        if only is None or bucket is only:
            for index, each in objects(at(bucket.properties, "LifecycleConfiguration", "Rules")):
                yield bucket, f"LifecycleConfiguration.Rules[{index}]", each


def _transitions(each: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("Transition", "Transitions"):
        for _, transition in objects(each.get(key)):
            yield transition


def _takes_away(each: dict[str, Any]) -> str | None:
    if "ExpirationInDays" in each or "ExpirationDate" in each:
        return "deletes"
    cold = any(text(transition.get("StorageClass")) in COLD for transition in _transitions(each))
    return "archives, where nobody reads it at once," if cold else None


def _day_faults(each: dict[str, Any]) -> Iterator[tuple[str, str]]:
    end = number(each.get("ExpirationInDays"))
    if end is not None and end < 1:
        yield "objects expire after a day at least", f"{end:g}"
    for transition in _transitions(each):
        days, kind = (
            number(transition.get("TransitionInDays")),
            text(transition.get("StorageClass")),
        )
        if days is not None and end is not None and days >= end:
            yield f"objects expire before they go to {kind}", f"{end:g} days, and {days:g}"
        if days is not None and kind in INFREQUENT and days < 30:
            yield f"S3 moves nothing to {kind} before 30 days", f"{days:g}"


def _read(given: Any) -> Any:
    """A policy's text as a document; None when it is not known or no JSON."""
    if not isinstance(given, str) or labels(given):
        return given if isinstance(given, dict) else None
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return None


def _policy_faults(given: Any) -> Iterator[str]:
    if not isinstance(given, str) or labels(given):
        return
    rules = fields(_read(given)).get("rules")
    if not isinstance(rules, list) or not rules:
        yield "the policy is no JSON with a list of rules"
        return
    priorities: list[float | None] = []
    for _, each in objects(rules):
        priority, selection = number(each.get("rulePriority")), fields(each.get("selection"))
        named = f"rule {shown(each.get('rulePriority'))}"
        if priority is None or priority in priorities:
            yield f"{named} has no priority of its own"
        status, kind = selection.get("tagStatus"), selection.get("countType")
        if status == "tagged" and not (
            selection.get("tagPrefixList") or selection.get("tagPatternList")
        ):
            yield f"{named} is about tagged images, and names no tagPrefixList or tagPatternList"
        if status not in ("tagged", "untagged", "any"):
            yield f"{named} has no tagStatus of tagged, untagged or any"
        if (
            status == "any"
            and priority is not None
            and any(
                (number(other.get("rulePriority")) or 0) > priority for _, other in objects(rules)
            )
        ):
            yield f"{named} is about any image, and must have the highest number"
        if kind == "sinceImagePushed" and selection.get("countUnit") != "days":
            yield f"{named} counts from the push, and has no countUnit of days"
        if kind == "imageCountMoreThan" and "countUnit" in selection:
            yield f"{named} counts images, and takes no countUnit"
        count = number(selection.get("countNumber"))
        if count is None or count < 1:
            yield f"{named} has no countNumber of 1 or more"
        priorities.append(priority)
