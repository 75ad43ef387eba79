"""How does one train an encoder–decoder on a GPU, and what does it cost?"""
