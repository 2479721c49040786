# %% [markdown]
# # One graph: live, backfilled, audited
#
# The graph of `flights.py`, the running mean delay of each airport, three times. First live: the flights come as they
# depart, over ZeroMQ with two workers, and everything is recorded. Then a backfill: Spark reads the raw file, its rows
# in another order, in tasks of its own. Then the audit: Spark computes the record again from the input that was
# recorded. The three digests are one, since each flight counts at its scheduled departure, whenever it comes.
#
# What came out is then a table for SQL, and a picture.
#
#     python examples/backfill.py [folder]
#
# The lines with `# %%` make this file a notebook for editors that know them; the others run it from top to bottom.

# %%
import sys
import tempfile
from pathlib import Path

import flights
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import drift

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="flights-backfill-"))
record = folder / "live"

# %% [markdown]
# ## Live
# A generator stands for the stream. The graph says how late a flight may come; the record keeps what came, and when.

# %%
live = drift.run(
    flights.graph, {"flights": drift.sources.live(flights.departures())}, engine="zeromq", workers=2, record=record
).finish()
print(f"digest {live.digest}  live on zeromq: {live.items_in:,} flights, {live.tombstones:,} means taken back")

# %% [markdown]
# ## Backfill
# The same graph takes a DataFrame. Its rows are the payloads; the graph's own time function puts them in order.

# %%
spark = drift.spark.session("local[2]")
raw = spark.read.csv(str(flights.NINE_DAYS), header=True).orderBy("flight", "time_hour")
backfill = drift.run(flights.graph, {"flights": raw}, engine="spark").finish()
print(f"digest {backfill.digest}  backfilled on Spark from {flights.NINE_DAYS.name}")

# %% [markdown]
# ## Audit
# The record is intact, and its recorded input gives the recorded output again.

# %%
audit = drift.audit(record, engines=("spark",))
(check,) = [each for each in audit.checks if each.what == "engine spark"]
print(f"digest {check.detail['digest']}  recomputed on Spark from the record: {check.result}")

# %% [markdown]
# ## SQL
# The output as a DataFrame, with names and types for the fields of its payloads. `time` is in minutes since 1970, UTC;
# New York is five hours behind in January.

# %%
means = drift.spark.dataframe(
    flights.graph, {"flights": raw}, columns="airport string, flight string, flights int, mean_delay double"
)
means.createOrReplaceTempView("means")
hourly = spark.sql("""
    select airport, time div 60 as hour, max_by(mean_delay, position) as mean_delay
    from means group by all order by airport, hour
""").toPandas()

# %% [markdown]
# The record can be asked as well: what came in, by hour of the day.

# %%
taken_in = spark.createDataFrame(drift.Record(record).table("input", columns=["dep_delay", "origin"]).to_pandas())
taken_in.createOrReplaceTempView("flights")
by_hour = spark.sql("""
    select origin, pmod(time div 60 - 5, 24) as hour, avg(int(dep_delay)) as delay, count(*) as flights
    from flights group by all having flights >= 10 order by origin, hour
""").toPandas()

# %%
DAY_BEFORE = 15705  # 31 December 2012, in days since 1970
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
for airport, rows in hourly.groupby("airport"):
    left.plot(rows["hour"] / 24 - DAY_BEFORE, rows["mean_delay"], label=airport)
left.set(title="As of each hour of the timetable", xlabel="day of January 2013, UTC", ylabel="mean delay, minutes")
for airport, rows in by_hour.groupby("origin"):
    right.plot(rows["hour"], rows["delay"], marker="o", markersize=3, label=airport)
right.set(title="By hour of the day", xlabel="scheduled hour of departure, New York", ylabel="mean delay, minutes")
right.set_xticks(range(6, 24, 3))
for axes in (left, right):
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
figure.savefig(folder / "delays.png", dpi=110)
print(f"{len(hourly):,} rows of means by hour; the picture is {folder / 'delays.png'}")

# %%
spark.stop()
