"""One model over several processes: each is a rank of a job, and runs the part of the model that it was given."""
