"""Settings of hooks: what to call after a run."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from floodmark.config.secret import Secret
from floodmark.errors import ConfigError

Event = Literal["failure", "recovery", "success"]


class Hook(Struct, frozen=True, kw_only=True):
    """A command or a webhook. What goes wrong with it is reported, and never fails the run."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """Program and arguments. It gets the message as JSON on stdin; no shell is involved."""
    webhook: Secret | None = None
    """URL that the message is posted to; preferably `${NAME}`, as such URLs are secret."""
    format: Literal["json", "slack"] = "json"
    """Body of the webhook: the whole message, or one that Slack shows."""
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """Time for one try."""
    tries: Annotated[int, Meta(ge=1, le=10)] = 3
    """How often to try, with pauses of 1, 2, 4 … seconds."""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.webhook is None):
            raise ConfigError("a hook has either 'command' or 'webhook'")
        if self.webhook is not None and not _is_web_address(self.webhook.reveal()):
            raise ConfigError(
                "the URL of a webhook begins with https:// or http:// and a host, and has no spaces"
            )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and all("!" <= character <= "~" for character in url)
        )
    except ValueError:  # such as a port that is not a number; the message would quote it
        return False


class Hooks(Struct, frozen=True, kw_only=True):
    """What to call after a run, once for all its tables."""

    on_failure: tuple[Hook, ...] = ()
    """When tables begin to fail or to differ, or do so with another error."""
    on_recovery: tuple[Hook, ...] = ()
    """When tables of which something failed or differed are as they should be again."""
    on_success: tuple[Hook, ...] = ()
    """After a run that loaded or deleted rows: about these tables, even if one failed later."""
    repeat_hours: Annotated[float, Meta(gt=0, le=8760)] = 24.0
    """A failure that goes on is reported again after this time."""

    def of(self, event: Event) -> tuple[Hook, ...]:
        """Return the hooks of an event."""
        by_event = {
            "failure": self.on_failure,
            "recovery": self.on_recovery,
            "success": self.on_success,
        }
        return by_event[event]

    @property
    def need_state(self) -> bool:
        """Whether it matters what was reported before."""
        return bool(self.on_failure or self.on_recovery)
