"""What a class got, thought and did: results, the report in the terminal and as a page, answers that are alike."""
