"""Archives for tests, and what they must find: by a scan of the bodies, cut into words as FTS5 cuts them."""

from pathlib import Path

import apsw

from claudemesh.pipeline import archive, shardfile
from claudemesh.pipeline.shardfile import Document, Shard

_TOKENIZE = apsw.Connection("").fts5_tokenizer("unicode61", [])

# Texts that an index of words, or a search in it, could take for something else.
TEXTS = [
    "plain words",
    "words",
    "AND",
    "this AND that OR NOT NEAR",
    "NEAR(this that, 2)",
    'a "quoted phrase" here',
    'phrase "quoted',
    '"',
    '""',
    "'; DROP TABLE document; --",
    "body:words",
    "-words",
    "^plain",
    "word*",
    "wor",
    "x-y x_y xy",
    "café",
    "cafe\u0301",
    "CAFE",
    "Straße STRASSE",
    "日本語 テキスト",
    "naïve\u00a0space\u3000wide",
    "😀 smile",
    "\u202ehidden",
    "tab\there\nand\x1fthere",
    "!!!",
    "٣ 3 ³",
]


def document(seq: int, body: str = "words", **changed: object) -> Document:
    plain = Document(
        seq=seq,
        client_message_id=f"c{seq}",
        broker_message_id=f"b{seq}",
        history_id=seq,
        sender_pubkey="ab" * 32,
        sender_name="bob",
        topic=None,
        priority="next",
        accepted_at=1_000 + seq,
        received_at=2_000 + seq,
        body=body,
        meta=None,
        reply_to="",
    )
    return plain._replace(**changed)


def write_parts(directory: Path, name: str, parts: list[list[Document]]) -> list[Shard]:
    return [shardfile.write(directory / f"{name}-{n}.db", part) for n, part in enumerate(parts)]


def publish(lake: Path, parts: list[list[Document]], source: str = "s1", name: str = "first") -> Path:
    lake.mkdir(exist_ok=True)
    directory = lake / "search" / source
    archive.rebuild(directory, lambda: write_parts(directory, name, parts))
    return directory


def found(lake: Path, words: str) -> list[str]:
    return [message["body"] for message in archive.search(lake, words, 1_000)["messages"]]


def tokens(text: str) -> list[str]:
    return [token for _, _, token in _TOKENIZE(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None)]


def holds(body: str, words: str) -> bool:
    """Say whether a body holds each word, as a phrase if it is cut into several; a word of nothing asks nothing."""
    phrases = [phrase for phrase in map(tokens, words.split()) if phrase]
    text = tokens(body)
    return bool(phrases) and all(
        any(text[at : at + len(phrase)] == phrase for at in range(len(text))) for phrase in phrases
    )
