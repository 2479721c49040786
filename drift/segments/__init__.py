"""Segments of a graph as runs of their own, with durable logs between them."""
