"""The nodes of a run under a schedule: in one process, on a simulated network and with simulated clocks."""
