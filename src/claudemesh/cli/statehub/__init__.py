"""The commands of the State Hub and of its edge, one file a noun."""
