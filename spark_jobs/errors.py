"""What can go wrong with a night's input, apart from mistakes in the code."""

from __future__ import annotations


class InsufficientInputError(Exception):
    """There is no input to compute from, or too much of it is damaged (exit code 5)."""


class EnvironmentFaultError(Exception):
    """Something the job needs is not installed; the message says what to install."""
