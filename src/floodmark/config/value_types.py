"""Types of values in the configuration, with their limits."""

from typing import Annotated, Literal

from msgspec import Meta

Rows = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Few = Annotated[int, Meta(ge=1, le=10_000)]
Megabytes = Annotated[int, Meta(ge=1, le=1_000_000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Tries = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=86400)]
Text = Annotated[str, Meta(min_length=1)]
Column = Annotated[str, Meta(min_length=1)]
Share = Annotated[str, Meta(pattern=r"^(100|[0-9]{1,2}(\.[0-9]{1,3})?)%$")]
Encoding = Literal[
    "raw", "az64", "bytedict", "delta", "delta32k", "lzo", "mostly8", "mostly16", "mostly32",
    "runlength", "text255", "text32k", "zstd",
]  # fmt: skip
