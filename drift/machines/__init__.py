"""The optimistic machines: pure, on batches. An engine gives them messages and carries what they return."""
