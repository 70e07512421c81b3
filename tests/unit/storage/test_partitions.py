"""The lake uses the same endpoint as boto3 in every AWS partition."""

from datetime import timedelta

import boto3  # type: ignore[import-untyped]
import obstore
import pytest

from floodmark.config.models import LakeSettings
from floodmark.storage.s3 import S3ObjectStore
from scenarios import use_test_keys

REGIONS = [
    "us-east-1",
    "eu-central-1",
    "us-gov-west-1",
    "cn-north-1",
    "cn-northwest-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "us-isof-south-1",
    "eu-isoe-west-1",
    "eusc-de-east-1",
]


@pytest.mark.parametrize("region", REGIONS)
def test_the_lake_uses_the_endpoint_of_its_partition(
    monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    use_test_keys(monkeypatch)
    # boto3 has an older name for this region.
    place = "https://lake.s3.us-east-1.amazonaws.com"
    if region != "us-east-1":
        client = boto3.client("s3", region_name=region)
        place = client.meta.endpoint_url.replace("://", "://lake.")
    store = S3ObjectStore("lake", region=region)
    url = obstore.sign(store._store, "GET", "k", timedelta(minutes=1))
    assert url.startswith(f"{place}/k?")
    assert f"%2F{region}%2Fs3%2F" in url


@pytest.mark.parametrize(
    ("endpoint", "outside"),
    [
        (None, False),
        ("https://s3.us-east-1.amazonaws.com", False),
        ("https://bucket.vpce-1-2.s3.us-gov-west-1.vpce.amazonaws.com", False),
        ("https://s3.cn-north-1.amazonaws.com.cn", False),
        ("http://minio:9000", True),
        ("https://amazonaws.com.example.org", True),
    ],
)
def test_which_lakes_redshift_cannot_read(endpoint: str | None, outside: bool) -> None:
    lake = LakeSettings(url="s3://lake", endpoint=endpoint)
    assert lake.outside_aws == (endpoint if outside else None)
