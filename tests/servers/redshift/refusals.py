"""Errors of the stand-in."""


class Refused(Exception):
    """Redshift would not do this; the stand-in answers with this error."""

    def __init__(self, message: str, code: str = "0A000", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.detail = detail


class CopyRefused(Refused):
    """A file does not fit. What Redshift notes of it in SYS_LOAD_ERROR_DETAIL comes along."""

    def __init__(
        self, reason: str, *, file: str, column: str = "", kind: str = "", length: str = ""
    ) -> None:
        context = f"File '{file}': {reason}"
        rule = "-" * 47
        super().__init__(
            "Spectrum Scan Error",
            "XX000",
            f"\n  {rule}\n  error:  Spectrum Scan Error\n  code:      15007\n"
            f"  context:   {context}\n  query:     1\n  {rule}\n",
        )
        self.reason = reason
        self.file = file
        self.column = column
        self.kind = kind
        self.length = length


def syntax_error(near: str) -> Refused:
    """What Redshift's grammar does not have."""
    return Refused(f'syntax error at or near "{near}"', "42601")
