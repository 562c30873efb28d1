"""Who else may read a file that holds a secret."""

from __future__ import annotations

import os


def open_to_others(file: os.stat_result) -> bool:
    """Whether others than this process may use a file that holds a secret.

    One that is ours has mode 0600. One that is another's, such as root's in a Kubernetes Secret, can reach us by its group alone.
    """
    return bool(file.st_mode & 0o007 or (file.st_mode & 0o070 and file.st_uid == os.geteuid()))
