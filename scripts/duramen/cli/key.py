"""`duramen key`: an API key for a tenant of the gateway."""

from pathlib import Path
from typing import Annotated

import typer

from duramen.serving.gateway.key_file import add_key, key_line, new_key
from duramen.serving.gateway.tenants import salt_secret, secret_beside


def key(
    name: Annotated[str, typer.Argument(metavar="TENANT", help="who the key is for")],
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="append its line; made (0600) if not there")
    ] = None,
) -> None:
    """Make an API key and show it, this once: the key file keeps only its digest.

    A tenant's older keys go on working until their lines are taken out of the file.
    """
    if file is None:
        made = new_key()
        line = key_line(name, made)
        print(f"key for {name}:        {made}\nline for the key file: {line}")
        return
    made = add_key(file, name)
    salt_secret(secret_beside(file))  # now: the service may not be allowed to write there
    print(f"key for {name}: {made}\nits line was added to {file}")
