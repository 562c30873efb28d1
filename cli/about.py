"""`sluice version` and `completion`."""

from __future__ import annotations

import contextlib

import click

from cli.output import emit
from cli.verb import Verb, output_option


@click.command(cls=Verb, example="sluice version -o json")
@output_option
def version(form: str) -> None:
    """Show the version, the commit it was built of, and the build: compiled or pure Python."""
    from importlib import metadata

    from gateway.build import COMMIT, COMMITS, TAG, build

    facts = build()
    versions: dict[str, object] = {
        "sluice": facts.version, "tag": TAG or None, "commits": int(COMMITS) if COMMITS else None, "commit": COMMIT or None,
        "build": facts.kind, "python": facts.python, "trio": metadata.version("trio"),
    }  # fmt: skip
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["pyspark"] = metadata.version("pyspark")
    emit(form, versions)


@click.command(
    cls=Verb,
    example="sluice completion bash > /etc/bash_completion.d/sluice\nsluice completion zsh > ~/.zfunc/_sluice\n"
    "sluice completion fish > ~/.config/fish/completions/sluice.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes verbs, options and keys in your shell: topics, clients, ... and connections of the running gateway.

    For zsh the folder has to be in `fpath` before `compinit`.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "sluice", "_SLUICE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
