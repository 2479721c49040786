"""Records of runs: input, output, decisions, and the graph."""
