"""AddTags, ListTags and DeleteTags.

The tags of models, endpoint configs, endpoints and training jobs.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, MutableMapping, Sequence
from typing import Any

from local_cloud.ministack.account import Scoped, sagemaker_arn
from local_cloud.protocol.errors import Actions, Request, validation_error
from local_cloud.protocol.listing import page

MOST = 50
"""How many tags a resource may have. Source: TagList."""
PAGE = 50
Given = Sequence[Mapping[str, str]] | None


class Tags:
    """The tags of the resources of the account and region in hand.

    `resources` has the names of each kind, as ARNs call it.
    """

    def __init__(self, resources: Mapping[str, Container[str]]) -> None:
        self.resources = dict(resources)
        self._kept: MutableMapping[str, dict[str, str]] = Scoped()

    @property
    def actions(self) -> Actions:
        """The actions of SageMaker that are answered here."""
        return {"AddTags": self._add, "ListTags": self._list, "DeleteTags": self._delete}

    def begin(self, arn: str, tags: Given) -> None:
        """Replaces all tags of a resource name by these."""
        self._kept[arn] = {tag["Key"]: tag["Value"] for tag in tags or ()}

    def _add(self, request: Request) -> Request:
        arn = self._known_resource(request)
        tags = self._kept.get(arn, {}) | {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        if len(tags) > MOST:
            raise validation_error(
                f"A resource can have at most {MOST} tags: {arn} would have {len(tags)}."
            )
        self._kept[arn] = tags
        return {"Tags": _sorted_tags(tags)}

    def _list(self, request: Request) -> Request:
        tags = _sorted_tags(self._kept.get(self._known_resource(request), {}))
        return page(request, "Tags", tags, int(request.get("MaxResults") or PAGE))

    def _delete(self, request: Request) -> Request:
        arn = self._known_resource(request)
        self._kept[arn] = {
            key: value
            for key, value in self._kept.get(arn, {}).items()
            if key not in request["TagKeys"]
        }
        return {}

    def _known_resource(self, request: Request) -> str:
        arn = str(request["ResourceArn"])
        kind, _, name = arn.split(":", 5)[5].partition("/")
        if arn != sagemaker_arn(kind, name) or name not in self.resources.get(kind, ()):
            raise validation_error(f'Could not find resource "{arn}".')
        return arn


def check_tags(tags: Given) -> None:
    """Refuses tags of which two have one key."""
    keys = [tag["Key"] for tag in tags or ()]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise validation_error(
            "Duplicate tag keys found. Please note that tag keys must be unique: "
            f"{', '.join(twice)}."
        )


def _sorted_tags(tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
