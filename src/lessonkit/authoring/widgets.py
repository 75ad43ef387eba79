"""Jupyter's types for widgets in a notebook: where one stands, and what all of them hold."""

from nbformat.notebooknode import NotebookNode

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"


def saved(notebook: NotebookNode) -> dict:
    """The widgets that a notebook holds, by id."""
    return notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
