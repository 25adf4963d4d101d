"""`redrive completion SHELL`: the script by which a shell completes the words of this command line."""

from typing import Final

import click
from click.shell_completion import get_completion_class

from redrive.operate.cli import output
from redrive.operate.cli.context import example

# What to write, and into which file, so that every new shell has it.
_INSTALL: Final = {
    "bash": ('eval "$(redrive completion bash)"', "~/.bashrc"),
    "zsh": ('eval "$(redrive completion zsh)"', "~/.zshrc"),
    "fish": ("redrive completion fish | source", "~/.config/fish/config.fish"),
}


@click.command(
    "completion",
    epilog=example(
        'eval "$(redrive completion bash)"', "redrive completion fish > ~/.config/fish/completions/redrive.fish"
    ),
)
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    To have it in every new shell, add the line to the file:
      bash   eval "$(redrive completion bash)"      ~/.bashrc
      zsh    eval "$(redrive completion zsh)"       ~/.zshrc
      fish   redrive completion fish | source       ~/.config/fish/config.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    complete = made(context.find_root().command, {}, "redrive", "_REDRIVE_COMPLETE")
    output.raw(complete.source_template % complete.source_vars())
    if output.stdout().is_terminal:
        line, file = _INSTALL[shell]
        output.note(f"To have it in every new shell, add this line to {file}:  {line}")
