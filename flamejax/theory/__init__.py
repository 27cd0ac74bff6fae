"""The paper's analysis as functions: on states of a run, on parameters, on linear problems."""
