"""A running count for each word of a text: one map, one scan.

Shows the shape of every graph: a source, steps, a sink; and that a run gives a digest of all it released, the same
on every engine.

    python examples/wordcount.py [a text, plain or gzip]
    drift run examples/wordcount.py:graph --source lines=examples/data/hamlet.txt.gz
"""

import sys
from pathlib import Path

import drift

HAMLET = Path(__file__).parent / "data" / "hamlet.txt.gz"

graph = drift.Graph("wordcount")
lines = graph.source("lines")
words = lines.flat_map(str.split)
counts = words.scan(key=lambda w: w, initial=0, step=lambda n, w: (n + 1, (w, n + 1)))
counts.sink("counts")


def main(path: str | Path = HAMLET) -> None:
    run = drift.run(graph, {"lines": drift.sources.text(path)})
    latest: dict[str, int] = dict(item.payload for item in run)
    for word, count in sorted(latest.items(), key=lambda pair: (-pair[1], pair[0]))[:10]:
        print(f"{count:7,}  {word}")
    report = run.report
    print(f"{report.items_in:,} lines in, {report.items_out:,} counts out, {len(latest):,} different words")
    print(f"digest {report.digest}")
    print(f"{report.items_out / report.seconds:,.0f} words/s on engine {report.engine!r}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
