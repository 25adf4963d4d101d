"""Systems that come with Redrive, each a folder on public names alone (G-30); `redrive.system.discover` finds them."""
