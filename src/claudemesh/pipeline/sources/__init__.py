"""What is read from the stores, and how: plain SQL over ADBC, for the driver and for Spark's workers alike."""
