"""A server for many callers at once: the Open Inference Protocol on an ASGI stack.

`serve.py` beside this folder is the small server of the standard library. This one needs the extra
`serve`; `tensors.py` and `batching.py` need numpy alone.
"""
