"""Batches of dicts with the same fields as columns, and maps that are expressions over them (extra `columns`)."""
