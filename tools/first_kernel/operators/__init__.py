"""The operators of a program, a kernel each, by how they move or combine elements."""
