"""How does a trained model write, and how good is what it wrote?"""
