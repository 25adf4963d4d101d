"""The pages, a module each; `redrive.operate.console.routes` has their addresses."""
