"""What every command of ours needs and no lesson is about: errors in one line, Ctrl-C that waits, files written whole.

The library and the kit both stand on it, because neither may know the other. It needs the standard library alone.
"""
