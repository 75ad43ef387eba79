"""How large is a field with five corners?"""
