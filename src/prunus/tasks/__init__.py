"""Tasks: networks, data sets and the recipes that train them."""
