"""What a cut of the lake shows: one JSON document, and one page that needs nothing but itself."""
