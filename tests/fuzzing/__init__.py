"""Bad input, made systematically: cases of commands with their files, and a place to try them.

A kind of case is a function of a `random.Random`, so that hypothesis can drive it in the tests and
a plain seed can in `experiments/reliability/fuzz.py`.
"""
