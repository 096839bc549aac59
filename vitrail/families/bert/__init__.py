"""Reading a text: the encoder alone."""
