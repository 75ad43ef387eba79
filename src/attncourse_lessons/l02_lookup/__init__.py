"""What if a dictionary never said no?"""
