"""AddTags, ListTags and DeleteTags."""

from __future__ import annotations

from collections.abc import Container, Mapping, MutableMapping, Sequence

from local_cloud.ministack.account import Scoped, sagemaker_arn
from local_cloud.protocol.errors import Actions, Request, validation_error
from local_cloud.protocol.listing import page

PAGE = 50
TagList = Sequence[Mapping[str, str]]


class Tags:
    """The tags of the present account and region; `resources` has the names of each ARN's kind."""

    def __init__(self, resources: Mapping[str, Container[str]]) -> None:
        self.resources = dict(resources)
        self._tags: MutableMapping[str, dict[str, str]] = Scoped()

    @property
    def actions(self) -> Actions:
        """The actions of SageMaker on tags."""
        return {"AddTags": self._add, "ListTags": self._list, "DeleteTags": self._delete}

    def begin(self, arn: str, tags: TagList | None) -> None:
        """Replace all tags of a resource."""
        self._tags[arn] = {tag["Key"]: tag["Value"] for tag in tags or ()}

    def _add(self, request: Request) -> Request:
        arn = self._known_arn(request)
        tags = self._tags.get(arn, {}) | {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        self._tags[arn] = tags
        return {"Tags": self._tag_list(arn)}

    def _list(self, request: Request) -> Request:
        tags = self._tag_list(self._known_arn(request))
        return page(request, "Tags", tags, int(request.get("MaxResults") or PAGE))

    def _delete(self, request: Request) -> Request:
        arn = self._known_arn(request)
        for key in request["TagKeys"]:
            self._tags.get(arn, {}).pop(key, None)
        return {}

    def _tag_list(self, arn: str) -> list[Mapping[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self._tags.get(arn, {}).items()]

    def _known_arn(self, request: Request) -> str:
        arn: str = request["ResourceArn"]
        kind, _, name = arn.split(":", 5)[5].partition("/")
        if arn != sagemaker_arn(kind, name) or name not in self.resources.get(kind, ()):
            raise validation_error(f'Could not find resource "{arn}".')
        return arn
