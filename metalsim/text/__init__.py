"""From Metal text to C++ that the shim headers understand: tokens, declarations, rewriting, lint."""
