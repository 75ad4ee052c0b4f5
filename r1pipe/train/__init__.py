"""Training, thin over TRL's trainers: the only place beside the engines that imports torch."""
