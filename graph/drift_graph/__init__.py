"""What a computation is: metas, items, operators, graphs, and their meaning. Imported through `drift` by users."""
