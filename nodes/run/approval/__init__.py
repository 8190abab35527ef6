"""Where a person decides: on the plan, a technique, the winner, the lessons."""
