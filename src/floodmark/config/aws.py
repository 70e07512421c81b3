"""Call AWS with the standard credential chain, and translate its errors."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
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
    action: str,
    what: str,
    parameters: Mapping[str, Any],
    *,
    region: str | None,
    profile: str | None,
) -> dict[str, Any]:
    """Call `service:Operation` for `what` (`kind name`), and translate AWS errors to ours."""
    with _translated(action, what, profile):
        return _call(action, parameters, region, profile)


def _call(
    action: str, parameters: Mapping[str, Any], region: str | None, profile: str | None
) -> dict[str, Any]:
    import boto3  # type: ignore[import-untyped]
    from botocore import xform_name  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    service, _, operation = action.partition(":")
    session = boto3.Session(profile_name=profile, region_name=region)
    limits = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard"})
    with closing(session.client(service, config=limits)) as client:
        answer: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
    return answer


@contextmanager
def _translated(action: str, what: str, profile: str | None) -> Iterator[None]:
    """Translate boto3 errors to ours, by class and code."""
    from botocore import exceptions as boto

    try:
        yield
    except boto.ClientError as error:
        details = error.response["Error"]
        code = details.get("Code", "")
        message = f"{what}: {action} failed: {code}: {_one_line(details.get('Message', ''))}"
        raise FloodmarkError(message, hint=_hint(code, action, what)) from error
    except boto.ProfileNotFound as error:
        raise ConfigError(
            f"{what}: AWS profile {profile!r} not found", hint="check 'profile'"
        ) from error
    except boto.NoRegionError as error:
        raise ConfigError(
            f"{what}: unknown AWS region", hint="set 'region' next to it, or AWS_REGION"
        ) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
        raise FloodmarkError(
            f"{what}: no AWS credentials found",
            hint="set 'profile' or AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
    except (boto.SSOError, boto.TokenRetrievalError, boto.UnauthorizedSSOTokenError) as error:
        raise FloodmarkError(
            f"{what}: the AWS login has expired: {_one_line(error)}",
            hint="log in with 'aws sso login'",
        ) from error
    except boto.BotoCoreError as error:
        raise FloodmarkError(
            f"{what}: {action} failed: {_one_line(error)}",
            hint="check the AWS credentials and the network",
        ) from error


def _hint(code: str, action: str, what: str) -> str | None:
    if code in _DENIED:
        return f"grant {action} to this AWS identity: {_GUIDE}"
    if code in _NOT_FOUND:
        return f"check the name and region of the {what.partition(' ')[0]}"
    if code in _UNKNOWN_KEY:
        return "renew the AWS credentials: they are unknown, wrong or expired"
    return None


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
