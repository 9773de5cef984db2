"""Where named graphs can live: Turtle files, an Oxigraph store on disk, a SPARQL endpoint."""
