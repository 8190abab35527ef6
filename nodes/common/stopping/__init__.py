"""When a run stops: for a person, at a cap, without a model, once enough is reached."""
