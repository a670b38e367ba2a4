"""States of the machine that builds engines, in the Amazon States Language."""
