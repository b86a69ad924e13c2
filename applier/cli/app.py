"""Finds the command that a user typed, loads its module and runs it; turns every error into one line and an exit code.

Codes: 0 done, 1 the work failed, 2 wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import cast

import click

from applier.cli.screen import echo, print_unknown_characters, shorten
from planner.errors import CompactorError, SettingsError

COMMANDS = {
    "plan": "plans",
    "review": "plans",
    "apply": "plans",
    "install": "install",
    "uninstall": "install",
    "status": "install",
    "resume": "clients",
    "restore": "stores",
    "facts": "stores",
    "log": "stores",
    "learn": "learn",
    "commits": "learn",
    "undo": "stores",
    "watch": "measure",
    "eval": "measure",
    "prompts": "plans",
    "store": "stores",
    "proxy": "servers",
    "wrap": "clients",
    "mcp": "servers",
    "demo": "plans",
}
"""Modules in `applier.cli.commands` by command name, in the order of the help; the function is ``NAME_command``."""
UNLISTED = {"mod": "servers"}
"""Commands that only other programs call, so that the help does not list them."""

LONGEST_ERROR = 600
"""Number of characters at which an error line is cut, as it may quote a long line of a file."""


class _Commands(click.Group):
    """Group of commands. The module of a command is loaded only when the command is used, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click calls it so
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' names, each with the first sentence of its help, which click would cut at the width."""
        commands = ((name, self.get_command(ctx, name)) for name in COMMANDS)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=1_000)) for name, command in commands if command]
            )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load the module of the command `cmd_name` and return the command; None if there is none of that name."""
        name = (COMMANDS | UNLISTED).get(cmd_name)
        if name is None:
            return None
        module = importlib.import_module(f"applier.cli.commands.{name}")
        return cast("click.Command", getattr(module, f"{cmd_name}_command"))


_NAMES = [click.Command(name) for name in COMMANDS]
"""Empty commands. click suggests their names for a misspelled one; `get_command` loads the real ones."""


@click.group(
    cls=_Commands, commands=_NAMES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="relevance-compactor", prog_name="compactor")
def compactor() -> None:
    """Plan, review and apply restorable compactions of an agent's history."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, print its errors, and return the exit code. `arguments`: words after ``compactor``."""
    print_unknown_characters()
    try:
        code = compactor.main(arguments, prog_name="compactor", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "compactor"
        return _fail(f"{error.format_message()} See '{command} --help'.", 2)
    except BrokenPipeError:  # the reader has ended, as `head` does; Python must not write the rest at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except CompactorError as error:
        return _fail(str(error), 2 if isinstance(error, SettingsError) else 1)
    except OSError as error:
        return _fail(f"{error.filename or 'input/output'}: {error.strerror or error}", 1)
    except click.Abort:  # click's own form of Ctrl-C; `main` prints its line
        raise KeyboardInterrupt from None


def _fail(text: str, code: int) -> int:
    """Print `text` as one line on standard error, and return the exit code `code`."""
    echo(f"compactor: {shorten(text, LONGEST_ERROR)}", err=True)
    return code
