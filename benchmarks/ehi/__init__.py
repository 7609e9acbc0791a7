"""EHI's ablations on SciFact: joint trainings of encoder and tree beside k-means on the same vectors."""
