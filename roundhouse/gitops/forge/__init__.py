"""The forge that holds the repository: its comments, issues, pull requests and workflows."""
