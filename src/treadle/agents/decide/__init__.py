"""The pure deciders: they compute a task's next action from its state."""
