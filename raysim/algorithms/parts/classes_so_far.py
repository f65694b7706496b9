"""The classes of the tasks so far, of which a method's server makes something at a task's end, such as images."""

from raysim.api import Server


def classes_so_far(server: Server) -> list[int]:
    """Return the classes of the current task and of all before, ascending."""
    return sorted({*server.earlier_classes(), *server.present_classes()})


def is_needed_later(server: Server) -> bool:
    """Return whether a task comes after the one that ends, and there is a class so far.

    At the end of task 1 there is none if all clients have left.
    """
    return not server.progress.is_final and bool(server.task or server.present)
