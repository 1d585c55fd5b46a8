"""What callers have: the communicator, its collectives, and the membership of a job."""
