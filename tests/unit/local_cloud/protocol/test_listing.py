import pytest

from local_cloud.protocol.errors import AwsError
from local_cloud.protocol.listing import list_page

pytestmark = pytest.mark.unit
RECORDS = [
    {
        "ThingName": f"{kind}-{number:02}",
        "ThingStatus": "Failed" if number % 2 else "Completed",
        "CreationTime": float(number),
    }
    for number, kind in enumerate(["dev"] * 12 + ["prod"])
]


def names(request, **options):
    """The names of all pages."""
    found, token = [], None
    while True:
        reply = list_page(
            {**request, "NextToken": token}, "Things", "Thing", iter(RECORDS), **options
        )
        found += [record["ThingName"] for record in reply["Things"]]
        token = reply.get("NextToken")
        if token is None:
            return found


@pytest.mark.parametrize("size", [1, 3, 13, 100, None])
def test_every_record_is_on_one_page_the_newest_first(size):
    assert names({"MaxResults": size}) == [record["ThingName"] for record in RECORDS[::-1]]


@pytest.mark.parametrize(
    ("request_", "options", "first", "count"),
    [
        ({"SortOrder": "Ascending"}, {}, "dev-00", 13),
        ({}, {"descending": False}, "dev-00", 13),
        ({"NameContains": "prod"}, {}, "prod-12", 1),
        ({"StatusEquals": "Failed"}, {}, "dev-11", 6),
    ],
)
def test_only_what_matches_is_listed_in_its_order(request_, options, first, count):
    found = names(request_, **options)
    assert (found[0], len(found)) == (first, count)


def test_refuses_a_token_that_no_page_came_with():
    with pytest.raises(AwsError, match="Invalid pagination token"):
        list_page({"NextToken": "zzz"}, "Things", "Thing", RECORDS)
