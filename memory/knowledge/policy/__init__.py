"""What is expected of a technique on a kernel: forecasts from evidence."""
