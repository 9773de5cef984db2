"""Launches compiled kernels, watches them, and tells what was found; in processes of their own if wanted."""
