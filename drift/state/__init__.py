"""The state that a run keeps in order to resume after any end: checkpoints, and where they are stored."""
