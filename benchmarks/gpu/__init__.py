"""The tables that users choose by, on the GPU of a machine: engines, servers, what they cost."""
