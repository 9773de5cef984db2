"""The command line of kx, its errors, paths and settings."""
