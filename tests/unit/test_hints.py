"""Every hint that leads somewhere has a test that follows it."""

import pytest

from hints import Hint, commands_in, followed, hints

# Parts of hints that no test follows, and why.
EXCEPTIONS = {
    "install floodmark on every worker": "needs a worker without Floodmark",
    "use 'verify: ca'": "the rule itself is tested in test_config.py; the mode in test_tls.py",
    "'floodmark init": "what init writes is tested in test_init.py",
    "goes back to before the failover": "tested with replicas that lost transactions",
    "that does: floodmark watermark set -t": "needs a log that kept no cursors, and a wider key",
    "set both: floodmark watermark set -t": "needs a log that kept no cursors, of an id cursor",
    "see which runs are active with 'floodmark doctor'": "a race, which the next run wins",
}


@pytest.mark.parametrize("hint", hints(), ids=lambda hint: hint.place)
def test_a_test_follows_each_hint(hint: Hint) -> None:
    parts = [*followed(), *EXCEPTIONS]
    assert any(part in hint.text for part in parts), (
        f"{hint.place}: no test follows {hint.text!r}: write one in the manner of"
        " tests/integration/test_hints.py, with @pytest.mark.follows_hint('part of its text')"
    )


def test_commands_are_extracted_from_messages() -> None:
    said = (
        "hint: drop t in the target, then 'floodmark watermark reset -t\nA:s.t' and sync read it;\n"
        "read them again: floodmark watermark reset -t A:s.t, then floodmark watermark set -t A:s.t"
        " --timestamp '2025-01-01 00:00:00'"
    )
    reset = ["watermark", "reset", "-t", "A:s.t"]
    moved = ["watermark", "set", "-t", "A:s.t", "--timestamp", "2025-01-01 00:00:00"]
    assert commands_in(said) == [reset, reset, moved]
