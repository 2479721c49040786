"""The engine over ZeroMQ; `kind` is its interface to the library, and imports no other module of it."""
