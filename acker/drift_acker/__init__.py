"""Minimal time: what is in flight, and below which time nothing is. Imported through `drift` by users."""
