"""The commands of `hettrain`, a file for each family: a function `add` puts the flags on a parser and names what runs.

A file is imported only when its command is asked for, so that each of them may import what it needs at its top and
`hettrain validate` waits neither for the Kubernetes client nor for kopf.
"""
