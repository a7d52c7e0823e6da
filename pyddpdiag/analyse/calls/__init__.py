"""Collectives other than buckets: who waits in them, who never began them, what differs between ranks."""
