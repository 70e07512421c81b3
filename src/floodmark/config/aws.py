"""Calls of AWS: with the credentials of the usual chain, and errors that say what to do."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from floodmark.errors import ConfigError, FloodmarkError

_GUIDE = "docs/guides/redshift-permissions.md"
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_NOT_FOUND = {"ClusterNotFound", "ClusterNotFoundFault", "ResourceNotFoundException"}
_UNKNOWN_KEY = {
    "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "SignatureDoesNotMatch",
    "UnrecognizedClientException", "InvalidSignatureException", "IncompleteSignature",
}  # fmt: skip


def call_aws(
    action: str, what: str, asked: Mapping[str, Any], *, region: str | None, profile: str | None
) -> dict[str, Any]:
    """Call `service:Operation` about something, `kind name`; AWS's errors become ours."""
    with _translated(action, what, profile):
        return _call(action, asked, region, profile)


def _call(
    action: str, asked: Mapping[str, Any], region: str | None, profile: str | None
) -> dict[str, Any]:
    import boto3  # type: ignore[import-untyped]
    from botocore import xform_name  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    service, _, operation = action.partition(":")
    session = boto3.Session(profile_name=profile, region_name=region)
    limits = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard"})
    client = session.client(service, config=limits)
    answer: dict[str, Any] = getattr(client, xform_name(operation))(**asked)
    return answer


@contextmanager
def _translated(action: str, what: str, profile: str | None) -> Iterator[None]:
    """Turn boto3's errors into ours, by their class and code."""
    from botocore import exceptions as boto

    try:
        yield
    except boto.ClientError as error:
        code, said = error.response["Error"].get("Code", ""), error.response["Error"]
        message = f"{what}: {action} failed: {code}: {_one_line(said.get('Message', ''))}"
        raise FloodmarkError(message, hint=_hint(code, action, what)) from error
    except boto.ProfileNotFound as error:
        raise ConfigError(
            f"{what}: there is no AWS profile {profile!r}", hint="check 'profile'"
        ) from error
    except boto.NoRegionError as error:
        raise ConfigError(
            f"{what}: its region is not known", hint="set 'region' beside it, or AWS_REGION"
        ) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
        raise FloodmarkError(
            f"{what}: no AWS credentials found",
            hint="set 'profile' or AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    except (boto.SSOError, boto.TokenRetrievalError, boto.UnauthorizedSSOTokenError) as error:
        raise FloodmarkError(
            f"{what}: the AWS login is over: {_one_line(error)}", hint="log in with 'aws sso login'"
        ) from error
    except boto.BotoCoreError as error:
        raise FloodmarkError(
            f"{what}: {action} failed: {_one_line(error)}",
            hint="check the AWS credentials, and the way to AWS",
        ) from error


def _hint(code: str, action: str, what: str) -> str | None:
    if code in _DENIED:
        return f"allow {action} to this AWS identity: {_GUIDE}"
    if code in _NOT_FOUND:
        return f"check the name of the {what.partition(' ')[0]}, and its region"
    if code in _UNKNOWN_KEY:
        return "renew the AWS credentials: they are unknown, wrong or have expired"
    return None


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
