"""SageMaker's List actions: what matches, in which order, a page at a time."""

import pytest

from local_cloud.protocol.errors import AwsError
from local_cloud.protocol.listing import PAGE, list_page

pytestmark = pytest.mark.unit
ENDPOINTS = [
    {
        "EndpointName": name,
        "EndpointStatus": status,
        "CreationTime": created,
        "LastModifiedTime": created + 100,
    }
    for name, status, created in (
        ("b-old", "InService", 1.0),
        ("a-new", "Failed", 3.0),
        ("c-mid", "InService", 2.0),
    )
]


def names(found):
    return [endpoint["EndpointName"] for endpoint in found["Endpoints"]]


def page_names(**request):
    return names(list_page(request, "Endpoints", "Endpoint", ENDPOINTS))


def test_newest_comes_first_unless_another_order_is_given():
    assert page_names() == ["a-new", "c-mid", "b-old"]
    assert page_names(SortOrder="Ascending") == ["b-old", "c-mid", "a-new"]
    assert page_names(SortBy="Name", SortOrder="Ascending") == ["a-new", "b-old", "c-mid"]
    assert page_names(SortBy="Status") == ["c-mid", "b-old", "a-new"]


def test_oldest_comes_first_where_the_service_says_so():
    actual = names(list_page({}, "Endpoints", "Endpoint", ENDPOINTS, descending=False))
    assert actual == ["b-old", "c-mid", "a-new"]


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        ({"NameContains": "-o"}, ["b-old"]),
        ({"StatusEquals": "Failed"}, ["a-new"]),
        ({"StatusEquals": "Creating"}, []),
        ({"CreationTimeAfter": 2.0}, ["a-new"]),
        ({"CreationTimeBefore": 2.0}, ["b-old"]),
        ({"LastModifiedTimeAfter": 101.0, "LastModifiedTimeBefore": 103.0}, ["c-mid"]),
    ],
)
def test_only_what_matches_is_listed(request_, found):
    assert page_names(**request_) == found


def pages(many, **request):
    token = {}
    while True:
        found = list_page({**request, **token}, "Endpoints", "Endpoint", many)
        yield names(found)
        if "NextToken" not in found:
            return
        token = {"NextToken": found["NextToken"]}


def test_every_record_is_on_one_page():
    many = [
        {**ENDPOINTS[0], "EndpointName": f"e{number:02}", "CreationTime": number}
        for number in range(25)
    ]
    assert [len(page) for page in pages(many)] == [PAGE, PAGE, 5]
    assert [len(page) for page in pages(many, MaxResults=25)] == [25]
    assert [name for page in pages(many, MaxResults=7) for name in page] == [
        f"e{number:02}" for number in reversed(range(25))
    ]


@pytest.mark.parametrize("token", ["zzz", "Zm9v", "5", "ZnJvbSAteA=="])
def test_refuses_a_token_that_no_page_came_with(token):
    with pytest.raises(AwsError, match="Invalid pagination token") as error:
        page_names(NextToken=token)
    assert error.value.code == "ValidationException"
