"""What a run keeps so that it can go on after anything that ends it: cuts, and the stores that they lie in."""
