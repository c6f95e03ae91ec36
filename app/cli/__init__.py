"""The command line. Each command is loaded only when it is called, so that `vuelvo --help` answers at once."""

from importlib import import_module

import click

COMMANDS = {
    "serve": ("app.cli.serve", "Serve the widget and the webhooks, and do what falls due."),
    "work": ("app.cli.serve", "Do what falls due, and nothing else. Any number of these may run."),
    "chat": ("app.cli.chat", "Talk to a tenant's agent here in the terminal."),
    "migrate": ("app.cli.migrate", "Bring the database's schema up to date."),
    "doctor": ("app.cli.doctor", "Look whether all is well; the exit code says so."),
    "tenants": ("app.cli.tenants", "Apply, list and show tenants."),
    "tasks": ("app.cli.tasks", "List and look at tasks, cancel them, retry, discard or settle them."),
    "conversations": (
        "app.cli.conversations",
        "List and read conversations, take one over, answer in it, give it back.",
    ),
    "promises": ("app.cli.promises", "Show how many promises were kept, came late, were broken."),
    "contacts": ("app.cli.contacts", "Erase what is known of a contact."),
    "export": ("app.cli.export", "Write what a tenant knows, or what it knows of one contact, as JSON lines."),
    "keys": ("app.cli.keys", "Make, list and revoke the keys to a tenant's API."),
    "renewals": ("app.cli.renewals", "Take renewals in from a file, list, show and close them."),
    "schedules": ("app.cli.schedules", "List and take away schedules, and see beforehand when cron comes."),
    "cadences": ("app.cli.cadences", "See what will go out around due days, and plan anew after a change."),
    "templates": ("app.cli.templates", "List a tenant's WhatsApp templates, submit one, ask for one's approval."),
    "mcp": ("app.cli.mcp", "Let an agent book, list and cancel, over MCP on standard input and output."),
    "telegram": ("app.cli.telegram", "Set up a tenant's Telegram bot."),
}


class Commands(click.Group):
    """Loads a command by its name when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.command(cls=Commands)
@click.version_option(package_name="vuelvo", prog_name="vuelvo")
def main() -> None:
    """Vuelvo: an agent that says it will come back, and does.

    Settings are read from the environment (VUELVO_…) and from a .env file in the current directory.
    """
