"""Features meet features: every three of them together, on ranks whose results are rebuilt in numpy."""
