# My own model in my own training loop, with five more lines.
python my_model.py
python -m prunus_runtime info model.prunus
