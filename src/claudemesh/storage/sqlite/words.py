"""How words that a person looks for are said to FTS5: alike wherever messages are searched."""


def match_all(words: str) -> str:
    """Return FTS5's expression for "all of these words", each quoted, so that no word is read as an operator."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words.split())
