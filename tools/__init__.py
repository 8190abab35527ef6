"""Compile, verify, profile and knowledge search as functions and LangChain tools."""
