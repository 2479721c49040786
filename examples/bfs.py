"""Breadth-first distances in a graph that grows edge by edge: a loop inside a loop.

The inner loop is the scan that keeps what a node knows: its distance from the nearest root, and its neighbours. The
outer loop carries offers: a node that learns of a shorter way offers it, one step longer, to all its neighbours. It
ends because a distance only ever falls.

Shows what the order is good for. All that an input causes comes before the next input, as if the inputs were taken one
at a time. So after each of them the latest distances are exactly those of the graph so far, with any number of workers.

    python examples/bfs.py
"""

import drift

#: (node, "link", neighbour) or (node, "offer", distance)
Message = tuple[str, str, str | int]
#: distance from the nearest root, if one is in reach, and neighbours in the order of their edges
Known = tuple[int | None, tuple[str, ...]]


def both_ways(edge: str) -> list[Message]:
    one, other = edge.split()
    return [(one, "link", other), (other, "link", one)]


def node(message: Message) -> str:
    return message[0]


def hear(known: Known, message: Message) -> tuple[Known, tuple[str, int | None, list[Message]]]:
    """A node hears a message: (what it knows then, (the node, its distance if that is new, offers to neighbours))."""
    distance, neighbours = known
    match message:
        case (name, "link", str(neighbour)):
            offers: list[Message] = [] if distance is None else [(neighbour, "offer", distance + 1)]
            return (distance, (*neighbours, neighbour)), (name, None, offers)
        case (name, "offer", int(offer)) if distance is None or offer < distance:
            return (offer, neighbours), (name, offer, [(each, "offer", offer + 1) for each in neighbours])
        case _:
            return known, (message[0], None, [])


NOTHING: Known = (None, ())

graph = drift.Graph("bfs")
edges = graph.source("edges")
roots = graph.source("roots")
offers = graph.feedback("offers")
messages = edges.flat_map(both_ways).merge(roots.map(lambda root: (root, "offer", 0)), offers)
heard = messages.scan(key=node, initial=NOTHING, step=hear)
heard.flat_map(lambda it: it[2], name="offer").feed(offers)
heard.flat_map(lambda it: [] if it[1] is None else [it[:2]], name="found").sink("distances")

#: Marriages among Florentine families of the 15th century (Padgett and Ansell, 1993).
MARRIAGES = """\
Castellani Peruzzi, Castellani Strozzi, Castellani Barbadori, Medici Acciaiuoli, Medici Barbadori, Medici Ridolfi,
Medici Tornabuoni, Medici Albizzi, Medici Salviati, Salviati Pazzi, Peruzzi Strozzi, Peruzzi Bischeri,
Strozzi Ridolfi, Strozzi Bischeri, Ridolfi Tornabuoni, Tornabuoni Guadagni, Albizzi Ginori, Albizzi Guadagni,
Bischeri Guadagni, Guadagni Lamberteschi""".replace("\n", " ").split(", ")


def main() -> None:
    run = drift.run(graph, {"edges": MARRIAGES, "roots": ["Medici"]})
    latest: dict[str, int] = {}
    for item in run:
        family, distance = item.payload
        if family in latest:
            print(f"after edge {item.time + 1:2} ({MARRIAGES[item.time]}): {family} {latest[family]} -> {distance}")
        latest[family] = distance
    for distance in range(max(latest.values()) + 1):
        print(f"{distance}: {', '.join(sorted(name for name, at in latest.items() if at == distance))}")
    print(f"digest {run.digest}")


if __name__ == "__main__":
    main()
