"""What this machine can do for switchsum and what is missing."""
