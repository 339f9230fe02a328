"""Callbacks for training loops that others wrote. Each is imported when it is used."""
