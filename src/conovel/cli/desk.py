"""``conovel desk``: a page at the site, for its analyst, its operator and its data protection."""

from __future__ import annotations

from pathlib import Path

import typer

from conovel.cli.show import require_there, say
from conovel.cli.tables import with_options

ADDRESS, PORT = "127.0.0.1", 8765


@with_options(
    settings=typer.Argument(help="The site's settings, site.toml."),
    port=typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535),
    address="Address of this machine to listen on. Any other than 127.0.0.1 can be reached by"
    " others, without encryption.",
)
def desk(*, settings: Path, port: int = PORT, address: str = ADDRESS) -> None:
    """Show a site in a browser: runs, consent, what left, and verdicts on flagged rows.

    Example: `conovel desk site.toml`

    It prints an address with a random token. Open it in a browser of this machine; from another
    one, first `ssh -L 8765:127.0.0.1:8765 SITE`. Nothing is loaded from elsewhere, no row leaves,
    and the page ends with Ctrl-C. It changes two files: verdicts, and the answer to a run that
    waits. Runs wait for a person if site.toml has `ask_seconds = 600` under `[consent]`.
    """
    require_there(settings)
    from conovel.desk.serve import serve  # noqa: PLC0415

    serve(settings, address, port, say)
