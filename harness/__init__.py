"""What is true: tasks, builds, vetting, isolation, devices (one simulated), verdicts, times."""
