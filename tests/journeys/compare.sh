# Two methods on the same network, with the same seeds.
prunus sweep compare.yaml
prunus report runs/compare
