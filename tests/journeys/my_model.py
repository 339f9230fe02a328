import torch
import torch.nn.functional as F
from torch import nn

import prunus

model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)),
)
images, labels = torch.randn(320, 1, 8, 8), torch.randint(0, 10, (320,))
loader = list(zip(images.split(32), labels.split(32), strict=True))
epochs = 4

cs = prunus.ContinuousSparsification(model, steps=epochs * len(loader), target_density=0.1)
optimizer = torch.optim.SGD(cs.param_groups(lr=0.1, weight_decay=1e-4), momentum=0.9)
for _ in range(epochs):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y) + cs.penalty()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        cs.step()
ticket = cs.ticket()
cs.harden()
prunus.strip(model)

print(prunus.deploy(model.eval(), ticket, images[:16]).save("model.prunus"))
