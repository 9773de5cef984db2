"""How well kx query finds what people ask for: the questions, and the measurement."""
