"""Why does a wrong shape not crash?"""
