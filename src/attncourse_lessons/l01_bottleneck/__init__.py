"""What must a reader carry along?"""
