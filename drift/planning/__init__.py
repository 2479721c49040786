"""Which steps to make durable for a bound on the time to recover: a model, and the sample run that it is given."""
