"""What follows from the endpoint of a cluster or workgroup, in every partition."""

import pytest

from floodmark.config.aws_login import _place, check_login
from floodmark.config.models import IamSettings, RedshiftConnection

NOTHING = IamSettings()


@pytest.mark.parametrize(
    ("host", "iam", "expected"),
    [
        ("etl-1.abc123.us-east-1.redshift.amazonaws.com", NOTHING, ("etl-1", "", "us-east-1")),
        ("etl.abc.cn-north-1.redshift.amazonaws.com.cn", NOTHING, ("etl", "", "cn-north-1")),
        ("ETL.abc.us-gov-west-1.redshift.amazonaws.com.", NOTHING, ("etl", "", "us-gov-west-1")),
        (
            "group.123456789012.eu-west-1.redshift-serverless.amazonaws.com",
            NOTHING,
            ("", "group", "eu-west-1"),
        ),
        (
            "group.123456789012.eu-west-1.redshift-serverless.amazonaws.com",
            IamSettings(workgroup="other", region="us-east-2"),
            ("", "other", "us-east-2"),
        ),
        ("warehouse.example.com", IamSettings(cluster="etl"), ("etl", "", None)),
    ],
)
def test_region_and_names_are_derived_from_the_endpoint(
    host: str, iam: IamSettings, expected: tuple[str, str, str | None]
) -> None:
    connection = RedshiftConnection(host=host, database="d", iam=iam)
    check_login("connections.A", connection)
    assert _place(connection, iam) == expected
