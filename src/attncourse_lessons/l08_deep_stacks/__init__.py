"""Why is deeper worse, and what must stand around a layer?"""
