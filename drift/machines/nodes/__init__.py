"""What the processes of a run do, without the processes: nodes, driven by every engine and by the simulator."""
