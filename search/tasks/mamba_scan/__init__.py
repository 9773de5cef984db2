"""Mamba-1 selective scan, prefill, forward, in the layout (B, D, L)."""
