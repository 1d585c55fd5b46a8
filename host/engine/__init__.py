"""The worker's half of the slot machine: arrays and frames in, frames and events out."""
