"""One task's gates, techniques and knowledge as tools that agents of LangChain call."""
