"""Networks of switches and hosts that run now, in one process and without root."""
