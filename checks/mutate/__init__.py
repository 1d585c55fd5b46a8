"""Rules changed one at a time, on one side alone, to see whether tests and checks notice."""
