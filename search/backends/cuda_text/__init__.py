"""Metal kernel text as text for ``mx.fast.cuda_kernel``: rewriting, divergence of SIMD-groups, MLX's signature."""
