"""What a recorded run's step would take with other ranks, links and bucket layouts."""
