"""The ground: pure values and rules that everything else may lean on."""
