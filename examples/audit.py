"""A run of the flights that can be shown, months later, to give the same answer again; and what a change would change.

First a record: while the flights of `flights.py` run, drift writes down what came in, when, and what went out. Then an
audit: the record's files are checked, and its input runs again on three engines and several workers. Each must give
every item of the recorded output, byte for byte. Then somebody edits one line, so that flights which leave early count
as punctual. The audit of the new file names the step, the line and the difference of the source, and shows the first
item that differs, then and now, with the flights that each was made of and the place where the two lineages part.

    python examples/audit.py [folder]

By the command line, in the folder of the examples:

    drift run flights.py:graph --source flights=data/departures.csv.gz --record monday
    drift audit monday --engine reference --engine zeromq --html audit.html
    drift explain monday --position 5000
"""

import sys
import tempfile
from pathlib import Path

import flights

import drift

LINE = 'delays[1] + int(flight["dep_delay"])'
EDITED = 'delays[1] + max(int(flight["dep_delay"]), 0)'


def edited_graph(folder: Path) -> str:
    """The flights' file with one line changed, as FILE:GRAPH."""
    text = Path(flights.__file__).read_text()
    assert LINE in text
    path = folder / "flights_edited.py"
    path.write_text(text.replace(LINE, EDITED))
    return f"{path}:graph"


def main(folder: str | Path | None = None) -> None:
    folder = Path(folder or tempfile.mkdtemp(prefix="flights-audit-"))
    record = folder / "monday"
    report = drift.run(flights.graph, {"flights": flights.departures()}, record=record).finish()
    print(f"digest {report.digest}  of {report.items_out:,} means, recorded in {record}")

    sound = drift.audit(record, engines=("local", "reference", "zeromq"), workers=(2, 3))
    for check in sound.checks:
        if "digest" in check.detail:
            print(f"digest {check.detail['digest']}  {check.what}: {check.found.split(';')[0]}")
    sound.write_html(folder / "audit.html")

    changed = drift.audit(record, edited_graph(folder), was=flights.graph)
    changed.write_html(folder / "edited.html")
    (finding,) = [check.finding for check in changed.checks if check.finding is not None]
    verdict, divergence = finding.verdict, finding.divergence
    print(f"edited: at position {divergence.position}, {verdict.title}: {verdict.step!r}, {Path(verdict.where).name}")
    print("".join(f"    {line}\n" for line in verdict.changes[0].diff.splitlines() if line[:2] in ("- ", "+ ")), end="")
    print(f"    recorded  {divergence.recorded.payload}\n    computed  {divergence.recomputed.payload}")
    parting = finding.both.parting
    print(f"    all is the same up to what {parting.new.step!r} made of {len(parting.new.made_of)} items")
    print(f"the reports are {folder / 'audit.html'} and {folder / 'edited.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
