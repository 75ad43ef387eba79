"""How does it know what stands where?"""
