"""The state that a run keeps in order to resume after any end: cuts, and where they are stored."""
