"""Other systems' protocols: what their folders hold, and how they run on real links and in virtual time."""
