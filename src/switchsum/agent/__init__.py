"""The agent: this machine's ranks of a job whose switch and controller are elsewhere."""
