"""Parameter servers on hosts, behind plain forwarding."""
