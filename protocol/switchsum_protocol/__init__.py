"""What every part agrees on: wire format, lane formats, block exponents, slot arithmetic, ring layout, errors."""
