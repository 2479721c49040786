"""How far one acker, one barrier and one caller go, and what Spark costs: measured (`measured.py`), then planned from
that by a simulation (`queues.py`) and a model of shuffles (`shuffles.py`): `python -m benchmarks.scale`."""
