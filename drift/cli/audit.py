"""`drift audit` and `drift record`: whether a record is intact, reproduced, and signed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext

import click

from drift import spark
from drift.cli.errors import DIFFERENT, reading, to_json
from drift.cli.options import EngineName, graph_option, json_option, master_option
from drift.cli.progress import watch_line
from drift.extras import need


@click.command("audit", short_help="Check a record; compute it again.")
@click.argument("path", metavar="RECORD")
@click.option("--intact", "only_intact", is_flag=True, help="Check the files only; nothing is computed, no code runs.")
@graph_option
@click.option(
    "--engine", "engines", type=EngineName(), multiple=True, default=["local"], show_default=True,
    help="Computes it again; may be given several times.",
)  # fmt: skip
@click.option(
    "--workers", type=int, multiple=True, default=[2], show_default=True,
    help="Of engine zeromq; may be given several times.",
)  # fmt: skip
@master_option
@click.option("--seeds", type=int, default=0, metavar="N", help="Also by N simulated schedules, for small records.")
@click.option("--html", metavar="FILE", help="Also write all of it as one HTML file.")
@click.option("--cases", metavar="FOLDER", help="Write a difference as a small case file, for drift simulate --case.")
@click.option(
    "--was", metavar="FILE:GRAPH", help="The version that was recorded, beside another --graph: shows both lineages."
)
@click.option("--ask-again", is_flag=True, help="Ask what calls were asked once more; says which answers have changed.")
@click.option("--expect", metavar="HASH", default="", help="The record's hash, as it was noted elsewhere.")
@click.option("--verify", "key", metavar="KEY.pub", help="The record is to be signed with this key.")
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it.")
def audit_command(
    path: str,
    only_intact: bool,
    graph: str | None,
    engines: Sequence[str],
    workers: Sequence[int],
    master: str | None,
    seeds: int,
    html: str | None,
    cases: str | None,
    was: str | None,
    ask_again: bool,
    expect: str,
    key: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check that a record is intact, and that its run gives the same answer again.

    \b
    intact:      files, manifest and digests agree; nothing is computed again.
    reproduced:  computed again by the engines named, and equal, item by item.

    The exit code is 0 where all is well, and 8 where something is not as it was recorded or could not be checked. To
    compute it again the graph is loaded from where it was, and its file runs; where the record is not yours, look at
    that file first.

    \b
    drift audit monday
    drift audit monday --engine reference --engine zeromq --workers 2 --workers 4
    drift audit monday --intact --json
    drift audit monday --verify ours.pub
    drift audit monday --graph new.py:graph --html report.html
    """
    need("records", "drift audit")
    from drift.auditing.audit import audit
    from drift.auditing.text import print_audit
    from drift.records.watch import Watch

    watch = Watch()
    active = not quiet and not as_json and sys.stderr.isatty()
    with reading(), watch_line(watch, active=active), spark.session(master) if master is not None else nullcontext():
        found = audit(
            path,
            graph,
            reproduce=not only_intact,
            engines=tuple(dict.fromkeys(engines)),
            workers=tuple(dict.fromkeys(workers)),
            seeds=range(seeds),
            expect=expect,
            key=key,
            cases=cases,
            was=was,
            ask_again=ask_again,
            watch=watch,
        )
    if html is not None:
        found.write_html(html)
    if as_json:
        click.echo(to_json(found.as_dict()))
    elif not quiet:
        print_audit(found)
    if not found.ok:
        raise click.exceptions.Exit(DIFFERENT)


@click.group("record", short_help="Sign a record; make a key.")
def record_group() -> None:
    """What is done with records besides running them again."""


@record_group.command("sign", short_help="Sign a record.")
@click.argument("path", metavar="RECORD")
@click.option("--key", required=True, metavar="KEY", help="File of a private Ed25519 key, as `keygen` makes it.")
def sign_command(path: str, key: str) -> None:
    """Sign a record as it is: SHA-256 of every file, in its manifest.sig.

    Look at it first (drift audit): a signature says who vouches for the files, not that they are right.
    """
    from drift.auditing.signature import sign

    signature = sign(path, key)
    click.echo(f"signed {len(signature.hashes)} files of {path}")


@record_group.command("keygen", short_help="Make a key to sign with.")
@click.argument("path", metavar="KEY")
def keygen_command(path: str) -> None:
    """Make a new Ed25519 key: KEY, which stays with you, and KEY.pub, to check signatures with."""
    from drift.auditing.signature import make_key

    public = make_key(path)
    click.echo(f"{path} is the private key, {public} the public one")
