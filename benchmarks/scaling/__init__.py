"""The scaling run: a load on an endpoint of the local cloud, its instances second by second."""
