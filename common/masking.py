"""Texts that end in logs, messages and tickets, without what looks like a secret in them."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"""(?ix)
    (\b (?! [\w-]{0,100}_file\b )                           # but for names of files
     (?: [\w-]{0,100}(?:password|passwd|secret|credential)[\w-]{0,100} | (?:[\w-]{1,100}[_-])?tokens? | (?:access|private|api)[_-]?keys? )
     ["']? \s* [:=] \s* )                              # the key
    (?! [\[{] ) ( "[^"]*"? | '[^']*'? | [^\s,\]}\#]+ )   # its value, where it is a word"""
)
_OPEN_SCHEMES: Final = "(?:redis|rediss|unix|file|s3|s3a|s3n|hdfs|webhdfs|swebhdfs)://"  # paths there are databases, files and folders
_LAST: Final = r"""[^\s"',;:.)}>\]]"""  # a URL's last character; what follows belongs to the text around it
_URLS: Final = (  # in each the last group is what may be secret
    re.compile(r"""(://)([^\s"'@]{1,2000})(?=@)"""),  # a user alone may be a token, and a password may hold a slash
    re.compile(rf"""(?i)((?P<quote>["'])(?!{_OPEN_SCHEMES})[a-z][a-z0-9+.-]{{0,20}}://[^\s"'/?#]*)([/?#](?:(?!(?P=quote)).)*)"""),
    re.compile(rf"""(?i)(\b(?!{_OPEN_SCHEMES})[a-z][a-z0-9+.-]{{0,20}}://[^\s"'/?#]*)([/?#][^\s"]*{_LAST})"""),
    re.compile(rf"""(?i)(\b[a-z][a-z0-9+.-]{{0,20}}://[^\s"?]*\?)(?!db=\d)([^\s"]*{_LAST})"""),
    re.compile(
        rf"""(?i)(\b(?:[\w-]{{1,100}}_)?(?:url|endpoint)["']?\s*[:=]\s*["']?(?!\w{{1,20}}://)[^\s"'/?]*)([/?@][^\s"]*{_LAST})"""
    ),  # no scheme
)


def mask_secrets(text: str) -> str:
    """`text` with everything that looks like a secret replaced by stars of the same length, so that columns stay true.

    Of a URL scheme, host and port are left: its user, path and query may let somebody in.
    """
    text = _SECRET.sub(lambda found: found[1] + "*" * len(found[2]), text)
    for pattern in _URLS:
        text = pattern.sub(lambda found: found[1] + "*" * (len(found[0]) - len(found[1])), text)
    return text
