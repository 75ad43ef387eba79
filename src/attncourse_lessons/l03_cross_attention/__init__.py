"""May the decoder look back?"""
