"""Errors of a night's input and environment."""

from __future__ import annotations


class InsufficientInputError(Exception):
    """There is no input to compute from, or too much of it is damaged (exit code 5)."""


class EarlyEndError(Exception):
    """The log of a day that is just over ends before it: its last files may still be shipped (exit code 1: trying again mends it)."""


class EnvironmentFaultError(Exception):
    """A program or package that the job needs is not installed; the message names it."""


class NeedsSparkError(Exception):
    """A small day has something that is not plain; the text says what. It is read again, with Spark."""
