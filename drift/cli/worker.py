"""`drift worker` and `drift key`: machines that take part in a run of another one."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from drift.cli.errors import Interrupted
from drift.engines.zeromq.joining import join
from drift.engines.zeromq.remote import key_of, write_new_key


@click.command("worker", short_help="Run a process of a run on another machine.")
@click.argument("address", metavar="tcp://HOST:PORT")
@click.option("--key", required=True, metavar="FILE", help="The key of the run, as `drift key` makes it.")
@click.option(
    "--here",
    default="",
    metavar="ADDRESS",
    help="Where others reach this machine.  [default: its address towards HOST]",
)
@click.option("--stay", is_flag=True, help="Wait for the next run when one is over, or cannot be reached any more.")
def worker_command(address: str, key: str, here: str, stay: bool) -> None:
    """Run a worker of a run on another machine, which waits for it at tcp://HOST:PORT, until that run is over.

    The run sends its graph. Modules of the graph have to be importable here, in the same versions: start the command in
    their folder, or install them. Whoever has the key can run anything here as this user.

    \b
    drift key run.key                                   # once; copy it to all machines
    drift run flights.py:graph --source flights=tcp://0.0.0.0:7001 --engine zeromq --workers 2 \\
        --listen tcp://10.0.0.1:7000 --key run.key      # on 10.0.0.1
    drift worker tcp://10.0.0.1:7000 --key run.key      # on each of two others
    """
    try:
        join(address, key_of(Path(key)), here, lambda text: click.echo(f"drift worker: {text}", err=True), stay=stay)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing of it runs here any more", signal.SIGINT) from None


@click.command("key", short_help="Make a key for the machines of a run.")
@click.argument("file", metavar="FILE")
def key_command(file: str) -> None:
    """Make a key in a new FILE, for the option --key of `drift run` and `drift worker`."""
    write_new_key(Path(file))
