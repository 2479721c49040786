"""Calls to the outside: what is declared of one, and asking."""
