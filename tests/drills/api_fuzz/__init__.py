"""Fuzz the HTTP API of a real cluster: requests made from its OpenAPI document, and bytes that are not quite HTTP.

python -m tests.drills.api_fuzz --requests 100000 --raw 5000 --seed 1

`document` reads the document, `requests` makes requests of it, `crafting` gives them ids and tokens that exist,
`verdicts` judges each reply, `fuzzer` sends, `raw` speaks broken HTTP, `nodes` watches the processes.
"""
