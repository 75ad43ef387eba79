"""How does one find what a slide got wrong?"""
