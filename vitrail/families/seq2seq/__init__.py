"""The encoder-decoder Transformer: sequences to sequences of their own length."""
