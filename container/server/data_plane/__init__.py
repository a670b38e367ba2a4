"""What the server does with a request, whatever carried it: refuse, tokenize, submit."""
