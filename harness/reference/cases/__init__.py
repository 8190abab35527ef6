"""The cases of a task: what they hold, and whether they tell right from wrong."""
