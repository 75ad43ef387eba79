"""What must it not see, and what can an average not say?"""
