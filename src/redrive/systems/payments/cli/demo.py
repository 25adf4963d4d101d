"""`redrive payments demo`: nine payments over three rails; see `redrive.systems.payments.demo`."""

from rich.console import Console

from redrive.kit.demo import Demo, demo_command


@demo_command("payments", once="End when the story is told, and look into the rails' ledgers.")
def command(demo: Demo, console: Console) -> int:
    """Watch payments: a reply is lost, an account is closed, a rail pays too late, and nothing is paid twice.

    Starts PostgreSQL and three simulated rails by itself. What only a person can judge is held in the end, for you. Run
    other commands in the directory that it names: its `redrive.toml` knows the database and the rails.
    """
    from redrive.systems.payments.demo.play import run  # what it needs is loaded only when it is used

    return run(demo, console)
