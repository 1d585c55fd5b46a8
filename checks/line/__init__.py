"""Allreduces on slow links of this machine's own, beside what the line carries: `make line`."""
