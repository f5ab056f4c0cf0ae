"""What learns a score from a training set; the only layer that fits scikit-learn models."""
