"""What a person calls: `Switch`, which `switchsum_switch` hands on."""
