"""Nodes: the processes of a run as pure state machines, driven by every engine and by the simulator."""
