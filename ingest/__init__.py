"""CUDA sources read as an expert reads them: kernels, primitives, optimization concepts."""
