"""What if two questions must be asked at once?"""
