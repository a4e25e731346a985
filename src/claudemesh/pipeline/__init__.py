"""The data pipeline: the stores copied into a lake of Parquet, and what is checked, rebuilt and measured from it."""
