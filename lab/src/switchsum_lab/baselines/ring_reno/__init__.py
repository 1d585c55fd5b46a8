"""A ring of hosts over TCP with Reno's window, behind plain forwarding."""
