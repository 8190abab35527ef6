"""What is true: tasks, toolchain, devices, verification, timing, profiles."""
