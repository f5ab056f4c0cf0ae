"""How agents decide which rows to reject: each way is a module or a package of its own."""
