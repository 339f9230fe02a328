"""The tools of the planner: places in the arena, lists of kept weights, tiles, instructions."""
