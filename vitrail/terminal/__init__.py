"""What is said on a terminal: results, messages, the plan of a training, and how it goes."""
