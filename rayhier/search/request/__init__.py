"""What a query asks for, and what answers it: rules, model, routes, the beam, answers."""
