"""Documents of one kind are first read by several threads at once."""

import subprocess
import sys

PROGRAM = """
import sys
from threading import Barrier, Thread
from typing import Annotated
from msgspec import Meta, defstruct
from floodmark.model.checksummed_json import seal, unseal

sys.setswitchinterval(1e-6)
Count = Annotated[int, Meta(ge=0)]
together = Barrier(4)

def read(data, kind):
    together.wait()
    unseal(data, kind, name="")

for _ in range(100):
    inner = defstruct("Inner", [(f"n{n}", Count, 0) for n in range(9)])
    fields = [("inner", inner), ("other", inner | None, None), ("checksum", str, "")]
    kind = defstruct("Kind", fields)
    data = seal(kind(inner()))
    threads = [Thread(target=read, args=(data, kind)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_the_first_documents_are_read_by_several_threads() -> None:
    """msgspec crashes if several threads convert to a type that it does not know yet."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
