"""The controller: jobs, the plan of table entries that serves them, and the daemon that writes it."""
