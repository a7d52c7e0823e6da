"""Starts, joins and supervises the ranks of a job and finds the one to blame; knows nothing about the job."""
