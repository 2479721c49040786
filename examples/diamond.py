"""Two branches of one source that meet again: the order at the meeting is a matter of structure.

Each deposit is booked, and one above 100.00 also pays a fee of 1 %. The balance needs the booking before the fee. No
lock and no join says so: the branch with fewer steps comes first, in every run, however fast either branch is, in
whatever order deposits arrive, and though the fees were declared first.

    python examples/diamond.py
"""

from typing import NamedTuple

import drift


class Deposit(NamedTuple):
    minute: int
    account: str
    cents: int


def is_large(deposit: Deposit) -> bool:
    return deposit.cents > 100_00


def fee(deposit: Deposit) -> tuple[str, str, int]:
    return deposit.account, "fee", -deposit.cents // 100


def booking(deposit: Deposit) -> tuple[str, str, int]:
    return deposit.account, "deposit", deposit.cents


def account(line: tuple[str, str, int]) -> str:
    return line[0]


def balanced(balance: int, line: tuple[str, str, int]) -> tuple[int, tuple[str, str, int, int]]:
    return balance + line[2], (*line, balance + line[2])


graph = drift.Graph("diamond")
deposits = graph.source("deposits", time=drift.EventTime(time=lambda deposit: deposit.minute, lateness=60))
fees = deposits.filter(is_large).map(fee)
bookings = deposits.map(booking)
ledger = fees.merge(bookings).scan(key=account, initial=0, step=balanced)
ledger.sink("ledger")

DEPOSITS = [
    Deposit(1, "Ann", 250_00),
    Deposit(2, "Bob", 40_00),
    Deposit(3, "Ann", 60_00),
    Deposit(3, "Bob", 990_00),
    Deposit(5, "Ann", 120_00),
]


def main() -> None:
    run = drift.run(graph, {"deposits": DEPOSITS})
    for name, kind, cents, balance in (item.payload for item in run):
        print(f"{name}  {kind:8}{cents / 100:9.2f}{balance / 100:9.2f}")
    print(f"digest {run.digest}")
    backwards = drift.run(graph, {"deposits": reversed(DEPOSITS)}, batch_items=1).finish()
    print(f"digest {backwards.digest} from last to first")


if __name__ == "__main__":
    main()
