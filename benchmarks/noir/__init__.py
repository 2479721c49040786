"""The ten benchmarks that Noir was measured with, as graphs, each beside plain Python. `make noir`.

Invariant: what a graph gives is what the plain loop gives, floats to nine digits; else the command fails.
"""
