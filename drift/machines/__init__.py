"""The optimistic machines: pure, on batches. An engine passes them messages and delivers the messages they return."""
