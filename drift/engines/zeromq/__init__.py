"""The engine over ZeroMQ: what it is to others is in `kind`, which imports nothing else of it."""
