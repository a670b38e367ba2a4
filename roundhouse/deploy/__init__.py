"""The road from a tree to deployed stacks."""
