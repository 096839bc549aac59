"""Language: what comes next in a text, or what stands where a word is hidden."""
