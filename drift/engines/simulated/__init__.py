"""The nodes of a run under a schedule: in one process, on a network and by clocks that are only thought."""
