"""Which parts, wired how, and is a change to them better?"""
