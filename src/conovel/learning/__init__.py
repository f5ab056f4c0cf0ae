"""How agents learn a score: each way of learning is a module or a package of its own."""
