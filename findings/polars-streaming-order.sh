#!/usr/bin/env bash
# In Polars' streaming engine a join without maintain_order gives another order in each run; top_k another choice of
# ties
#
# Versions: polars==2.1.0
# Expected: a left join keeps the order of its left side, as it always has, and top_k takes the same rows on both
# engines.
# Seen:     the rows of a left join come in another order in two runs of one query in one process, on two threads or
#           more; in memory the order is stable. Of equal keys top_k takes others than the engine in memory.
#           unique(keep='first', maintain_order=True), group_by(maintain_order=True), cum_sum and join_asof agree.
# Matters:  what is order-sensitive behind such a join differs from run to run: say maintain_order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check polars==2.1.0
venv/bin/python - <<'EOF'
import random
import polars as pl

if pl.thread_pool_size() < 2:
    raise SystemExit("this needs two threads or more")
random.seed(1)
keys = [random.randrange(1000) for _ in range(200_000)]
lazy = pl.DataFrame({"k": keys, "v": range(len(keys))}).lazy()


def outputs(query, engine, runs=6):
    return {tuple(query.collect(engine=engine).hash_rows().to_list()) for _ in range(runs)}


join = lazy.head(5000).join(lazy.unique("k", keep="first"), on="k", how="left")
assert len(outputs(join, "in-memory")) == 1
assert len(outputs(join, "streaming")) > 1
ordered = lazy.head(5000).join(lazy.unique("k", keep="first"), on="k", how="left", maintain_order="left")
assert len(outputs(ordered, "streaming") | outputs(ordered, "in-memory")) == 1
top = lazy.top_k(5, by="k")
assert outputs(top, "in-memory").isdisjoint(outputs(top, "streaming"))
print("as described")
EOF
