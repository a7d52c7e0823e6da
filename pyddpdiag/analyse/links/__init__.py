"""Connections between ranks: what each sent, lost and waited for, and which link or host is at fault."""
