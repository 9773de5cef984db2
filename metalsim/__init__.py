"""Metal Shading Language on any CPU: compile, run, check and estimate compute kernels."""
