"""Packets in memory that native code writes: what leaves a batch, what waits for a port, what is not whole yet."""
