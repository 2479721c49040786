"""drift on Spark: the same graph where data outgrow one machine."""
