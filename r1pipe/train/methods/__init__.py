"""The methods of reinforcement learning that an RL stage can take, in one frame: a source of answers, a reward, a coefficient."""
