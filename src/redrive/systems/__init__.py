"""Systems that come with Redrive, each on its public names alone and each one folder: take the folder away, and it is
not there (G-30). `redrive.system.discover` finds them here, and those of other packages by their entry point.
"""
