"""The search for fast Metal kernels: a world model that grows from measurements, and honest evaluation."""
