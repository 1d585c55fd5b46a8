"""What calls a controller over gRPC: members, users, and what is said when nobody answers."""
