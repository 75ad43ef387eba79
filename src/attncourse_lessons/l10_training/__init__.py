"""What stands between two files of sentences and a translator?"""
