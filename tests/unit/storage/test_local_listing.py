"""A folder is listed from a key on as an object store lists its keys."""

from pathlib import Path

from floodmark.storage.local import LocalObjectStore

EVERY = ["a/5!", "a/5/1", "a/5/1!", "a/50", "a/50~/2", "a/6/0/1"]
ENDS = ["", "!", "/", "0", "/0", "/1", "~"]


def test_only_later_keys_are_listed(tmp_path: Path) -> None:
    """The name of a folder starts other names, which sort before and after its slash."""
    store = LocalObjectStore(str(tmp_path))
    for key in EVERY:
        store.put(key, b"")
    for after in (f"{start}{end}" for start in [*EVERY, "a/4", "a/5"] for end in ENDS):
        found = [info.key for info in store.list_objects("a/", after=after)]
        assert found == [key for key in EVERY if key > after], after
