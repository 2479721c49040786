"""The catalogue of operators, a family a file. Each consists of maps, groupings and feedback edges."""
