"""What the lessons' errata are made of: the five decks, an erratum, and the code slide's language model."""
