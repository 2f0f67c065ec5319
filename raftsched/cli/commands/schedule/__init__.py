"""Define `raftsched schedule …` and `raftsched apply`: jobs that are submitted again and again."""
