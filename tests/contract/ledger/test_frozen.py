"""The law of a version is frozen: a ledger that was made under it must find the very same words."""

from hashlib import sha256

import pytest

from claudemesh.ledger.stores.sqlite.law import objects_of

# Until the first release these change with the law; from then on a change is a new version, and never a new digest.
DIGESTS = {
    1: "17d209b078e4d65f4802f54eb89382d26dba9c0ef6238ea0d2d7e0c0be37636d",
    2: "6240864158ec00a2271cf1731bc33726b1e78a840a735270a6362dd6cf8b7d2c",
}


@pytest.mark.req("L7")
@pytest.mark.parametrize("version", DIGESTS)
def test_the_words_of_a_version_do_not_change(version: int) -> None:
    told = "\n".join(sorted(repr(tuple(one)) for one in objects_of(version)))
    assert sha256(told.encode()).hexdigest() == DIGESTS[version]
