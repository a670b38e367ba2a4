"""What a change of the repository does to an environment, computed from files alone.

In come two trees and their templates; out go a plan, its comment, a promotion or a rollback.
`plan`, `promote`, `rollback`, `drift` and the workflows call it.
"""
