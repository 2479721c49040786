"""The catalogue of operators, one family per file. Each consists of maps, groupings and feedback edges."""
