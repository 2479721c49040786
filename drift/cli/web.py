"""`drift web`: pages of runs that have ended, or run elsewhere, from their state."""

from __future__ import annotations

from collections.abc import Sequence

import click

from drift.extras import need


@click.command("web", short_help="Show runs from their state, also those that have ended.")
@click.argument("states", metavar="STATE...", nargs=-1, required=True)
@click.option("--at", "address", default="0", metavar="[HOST:]PORT", help="Where to serve.  [default: any free port]")
def web_command(states: Sequence[str], address: str) -> None:
    """Serve the pages of runs that kept their state in STATE..., until Ctrl-C: what their own pages showed last.

    A run stores that with its checkpoints, and when it ends; one that is still running is shown as of its last
    checkpoint, and one that was killed as "died". As for --web, on any host but this machine's loopback the page has a
    token.

    \b
    drift web folder
    drift web folder another postgresql://USER@HOST/DATABASE#NAME --at 8000
    """
    need("web", "drift web")
    from drift.web.address import as_address
    from drift.web.server import LivePage
    from drift.web.stored import StoredRun

    runs = [StoredRun(each) for each in states]
    paths = [""] if len(runs) == 1 else [f"{number}/" for number in range(1, len(runs) + 1)]
    page = LivePage(as_address(address), dict(zip(paths, runs)))
    page.start()
    click.echo(f"showing {len(runs)} {'run' if len(runs) == 1 else 'runs'} at {page.url}", err=True)
    try:
        page.wait()
    finally:
        page.close()
