"""What the error messages of DDP over Gloo mean: one catalog, read by the doctor, trainings and reports. No torch."""
