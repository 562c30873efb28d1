"""The check of a secret file's mode: whether other users can read the file."""

from __future__ import annotations

import os


def open_to_others(file: os.stat_result) -> bool:
    """Whether other users than this process's may read or write a file that holds a secret.

    A file of this user must have mode 0600. A file of another user, such as root's in a Kubernetes Secret, may be read by the group: this
    process reads it as one of the group.
    """
    return bool(file.st_mode & 0o007 or (file.st_mode & 0o070 and file.st_uid == os.geteuid()))
