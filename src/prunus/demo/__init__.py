"""`prunus demo`: the lottery ticket hypothesis on embedded data, with a table and a page."""
