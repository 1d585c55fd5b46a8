"""A ring of hosts (Patarasuk and Yuan 2009) behind plain forwarding."""
