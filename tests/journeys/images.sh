# From a folder of photos, one folder for each class, to a model that is served.
prunus prune --task image-folder/resnet20 --data photos --target-density 0.1
prunus deploy runs/image-folder-resnet20-cs-prune-* --data photos --out model.prunus
python -m prunus_runtime serve model.prunus
