"""The least protocol that adds in the switch and bears loss: a beginning for one's own."""
