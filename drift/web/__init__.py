"""A run seen while it runs: a page and its data over HTTP, numbers for Prometheus and OpenTelemetry.

`drift.run(..., web=8080)` and `drift run ... --web 8080` serve it; see docs/live.md.
"""

from __future__ import annotations
