"""Writing a graph: the catalogue of operators, a family a file. Each lowers to maps, groupings and feedback edges."""
