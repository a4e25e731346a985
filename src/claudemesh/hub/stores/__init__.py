"""Where the hub's rows and journal are kept."""
