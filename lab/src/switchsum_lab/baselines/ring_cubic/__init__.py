"""A ring of hosts over TCP with CUBIC's window, behind plain forwarding."""
