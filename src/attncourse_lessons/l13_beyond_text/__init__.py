"""What is a word of a picture, and of a sound?"""
