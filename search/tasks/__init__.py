"""Tasks: one folder each, with its definition, oracle, properties, seed and building blocks."""
