"""The gates that a candidate passes, in order, each in a fresh process of its own."""
