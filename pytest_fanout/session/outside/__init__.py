"""Agents that are not in this process: a command line a trial, or a server that is started once."""
