"""Launches of MLX's own kernels, checked and compared with numpy.

    python -m benchmarks.mlx_families attention --mlx FOLDER
    python -m benchmarks.mlx_families all --mlx FOLDER --json results.json

FOLDER is a checkout of github.com/ml-explore/mlx. Each family module builds launches with the buffers, function
constants, grids and threadgroups of MLX's host code (mlx/backend/metal/*.cpp); ``runner`` compiles and runs them in
checked mode, and compares every output with float64 arithmetic of numpy.
"""
