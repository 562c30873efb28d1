"""The part that a method is which costs the broker more than a message (`costly_methods.py`)."""

from __future__ import annotations

from gateway.pipeline.parts import Part


class CostlyMethod(Part):
    """A method that is judged, and waits in its channel's line. It may stand for `count` things at once (`requeues.py`); of several for one
    frame, only the last brings it."""
