"""The graphs of policies by rounds, compiled, for langgraph.json to name them."""

from __future__ import annotations

from .policies import policy_graph

coder_judge = policy_graph("coder_judge")
correction_only = policy_graph("correction_only")
optimisation_only = policy_graph("optimisation_only")
minimal = policy_graph("minimal")
zero_shot = policy_graph("zero_shot")
best_of_n = policy_graph("best_of_n")
