"""Engines: shells that give the machines sources, time and each other."""
