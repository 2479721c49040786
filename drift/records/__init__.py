"""Records of runs: what was computed, of what, by what."""
