"""Files of a data directory: formats, names, identity, and the disk under them."""
