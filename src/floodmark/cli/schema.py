"""`floodmark schema`: print the JSON schema of the configuration."""

from importlib.resources import files

import click

# \b keeps click from running the lines together.
_USE = """\b
floodmark schema > floodmark.schema.json, and as the first line of floodmark.yml:
# yaml-language-server: $schema=floodmark.schema.json
"""


@click.command(epilog=_USE)
def schema() -> None:
    """Print the JSON schema of floodmark.yml, for editors."""
    click.echo(files("floodmark.config").joinpath("floodmark.schema.json").read_text(), nl=False)
