"""Finding what the graph knows: embeddings, words, and steps along its edges."""
