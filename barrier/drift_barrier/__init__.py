"""The output barrier: the one buffer of a graph, and the digest of what it releases. Imported through `drift`."""
