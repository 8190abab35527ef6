"""Programs of few operations as stages, each fused into one kernel."""
