"""The data pipeline: the stores copied into a lake of Parquet, and all that is checked and measured from it."""
