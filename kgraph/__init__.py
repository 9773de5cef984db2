"""The knowledge graph: CUDA optimization knowledge, its Metal equivalents, and what was seen and tried."""
