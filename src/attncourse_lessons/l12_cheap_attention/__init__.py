"""Must everybody look at everybody?"""
