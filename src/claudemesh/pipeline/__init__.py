"""The data pipeline: what the stores hold, copied into a lake of Parquet, checked, rebuilt and measured on Spark."""
