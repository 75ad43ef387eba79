"""Can a sequence ask itself?"""
