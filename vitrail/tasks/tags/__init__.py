"""Tags: a label for each word of a sentence, or one for a whole text."""
