"""`durio completion` prints a completion script for a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from durio.cli.main import COMPLETION_VARIABLE, PROGRAM, commands, keep_lines
from durio.cli.output import show_json

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a completion script for your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@keep_lines
def command(*, shell: str, is_json: bool) -> None:
    r"""Print a shell script that completes commands and options of durio.

    Write it once to the folder where your shell looks for completion scripts, then open
    a new shell. Completion loads no App and opens no store.

    \b
    Examples:
      durio completion bash > ~/.local/share/bash-completion/completions/durio
      durio completion zsh > ~/.zfunc/_durio
      durio completion fish > ~/.config/fish/completions/durio.fish

    For zsh, put fpath+=~/.zfunc before compinit in ~/.zshrc.

    With --json: {"shell", "script"}.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(shell)
    # Not `kind.source`: for bash that starts a bash to ask for its version.
    script = ShellComplete.source(kind(commands, {}, PROGRAM, COMPLETION_VARIABLE))
    if is_json:
        show_json({"shell": shell, "script": script})
    else:
        click.echo(script)
