"""Networks from images to images, boxes, volumes and motion."""

import megengine.functional as F
import megengine.module as M
import numpy as np
from mge_fixtures.table import f32

from mge_networks.classifiers import Classifier, Flatten, conv
from mge_networks.table import network


class UNet(M.Module):
    def __init__(self, transposed: bool):
        super().__init__()
        widths = (8, 16, 32)
        self.down = [M.Sequential(conv(a, b), conv(b, b)) for a, b in zip((3, 8, 16), widths, strict=True)]
        self.up = [M.Sequential(conv(48, 16), conv(16, 16)), M.Sequential(conv(24, 8), conv(8, 8))]
        self.grow = [M.ConvTranspose2d(32, 32, 2, 2), M.ConvTranspose2d(16, 16, 2, 2)] if transposed else None
        self.last = M.Conv2d(8, 4, 1)

    def enlarge(self, x, k):
        return self.grow[k](x) if self.grow else F.vision.interpolate(x, scale_factor=2, align_corners=False)

    def forward(self, x):
        kept = []
        for k, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if k else x)
            kept.append(x)
        for k, layer in enumerate(self.up):
            x = layer(F.concat([self.enlarge(x, k), kept[1 - k]], axis=1))
        return F.softmax(self.last(x), axis=1)


class SuperResolution(M.Module):
    """Residual blocks, then pixels from channels."""

    def __init__(self):
        super().__init__()
        self.first, self.last = M.Conv2d(3, 16, 3, padding=1), M.Conv2d(16, 12, 3, padding=1)
        self.blocks = [
            M.Sequential(M.Conv2d(16, 16, 3, padding=1), M.PReLU(16), M.Conv2d(16, 16, 3, padding=1)) for _ in range(3)
        ]

    def shuffle(self, x):
        batch, width, height, length = x.shape
        x = F.reshape(x, (batch, width // 4, 2, 2, height, length))
        return F.reshape(F.transpose(x, (0, 1, 4, 2, 5, 3)), (batch, width // 4, height * 2, length * 2))

    def forward(self, x):
        y = self.first(x)
        for block in self.blocks:
            y = y + block(y) * 0.5
        return self.shuffle(self.last(y)) + F.vision.interpolate(x, scale_factor=2, mode="bicubic")


class Generator(M.Module):
    """From noise to an image by transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.fc = M.Linear(16, 32 * 16)
        self.layers = [M.Sequential(M.ConvTranspose2d(a, b, 4, 2, 1), M.BatchNorm2d(b)) for a, b in ((32, 16), (16, 8))]
        self.last = M.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1)

    def forward(self, x):
        x = F.reshape(self.fc(x), (-1, 32, 4, 4))
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
        return F.tanh(self.last(x))


class Deformable(M.Module):
    def __init__(self):
        super().__init__()
        self.first, self.offset, self.mask = (
            conv(3, 8, 3, 2),
            M.Conv2d(8, 18, 3, padding=1),
            M.Conv2d(8, 9, 3, padding=1),
        )
        self.deform, self.last = M.DeformableConv2d(8, 16, 3, padding=1), M.Conv2d(16, 4, 1)

    def forward(self, x):
        x = self.first(x)
        return self.last(F.relu(self.deform(x, self.offset(x), F.sigmoid(self.mask(x)))))


class Video(M.Module):
    """3-D convolutions; a full one, and one split into space and time."""

    def __init__(self):
        super().__init__()
        self.first, self.space = M.Conv3d(3, 8, 3, 1, 1), M.Conv3d(8, 16, (1, 3, 3), (1, 2, 2), (0, 1, 1))
        self.time, self.grow = (
            M.Conv3d(16, 16, (3, 1, 1), (2, 1, 1), (1, 0, 0), groups=4),
            M.ConvTranspose3d(16, 8, 2, 2),
        )
        self.fc = M.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.space(F.relu(self.first(x))))
        x = F.relu(self.grow(F.relu(self.time(x))))
        return self.fc(F.mean(F.flatten(x, 2), axis=2))


class Detector(M.Module):
    """One feature map, boxes by anchors, the best after suppression, and a head on their regions."""

    def __init__(self):
        super().__init__()
        self.body = M.Sequential(conv(3, 16, 3, 2), conv(16, 16, 3, 2), conv(16, 16, 3, 2))
        self.score, self.box = M.Conv2d(16, 3, 1), M.Conv2d(16, 12, 1)
        self.head = M.Sequential(M.Linear(16 * 9, 32), M.ReLU(), M.Linear(32, 5))

    def boxes(self, delta):
        height, width = delta.shape[2], delta.shape[3]
        ys, xs = F.meshgrid(F.arange(height) * 8 + 4, F.arange(width) * 8 + 4, indexing="ij")
        centres = F.reshape(F.stack([xs, ys], axis=-1), (-1, 1, 2))
        sizes = np.array([[12, 12], [24, 12], [12, 24]], np.float32).reshape(1, 3, 2)
        delta = F.reshape(F.transpose(delta, (0, 2, 3, 1)), (-1, 3, 4))
        centre = centres + F.tanh(delta[:, :, :2]) * 4
        half = F.exp(F.clip(delta[:, :, 2:], -1, 1)) * sizes * 0.5
        return F.reshape(F.concat([centre - half, centre + half], axis=2), (-1, 4))

    def forward(self, x):
        features = self.body(x)
        scores = F.reshape(F.transpose(F.sigmoid(self.score(features)), (0, 2, 3, 1)), (-1,))
        boxes = self.boxes(self.box(features))
        best, order = F.topk(scores, 40, descending=True)
        boxes = F.concat([F.zeros((40, 1)), F.reshape(boxes[order], (40, 4))], axis=1)
        kept = F.vision.nms(boxes[:, 1:], best, 0.4)
        regions = F.vision.roi_align(features, boxes, (3, 3), spatial_scale=1 / 8)
        classes = F.softmax(self.head(F.flatten(regions, 1)), axis=1)
        return boxes[kept], best[kept], classes[kept]


class SpatialTransformer(M.Module):
    """The network looks where it wants to: an affine map is estimated and applied."""

    def __init__(self):
        super().__init__()
        self.where = M.Sequential(
            conv(3, 8, 3, 2), conv(8, 8, 3, 2), M.AdaptiveAvgPool2d(2), Flatten(), M.Linear(32, 8)
        )
        self.what = Classifier(M.Sequential(conv(3, 8, 3, 2), conv(8, 16)), 16, 6)

    def forward(self, x):
        change = F.concat([F.tanh(self.where(x)) * 0.05, F.zeros((x.shape[0], 1))], axis=1)
        matrix = F.reshape(change, (-1, 3, 3)) * np.array([[1, 1, 40], [1, 1, 40], [0.01, 0.01, 1]], np.float32)
        matrix = matrix + np.eye(3, dtype=np.float32)
        return self.what(F.vision.warp_perspective(x, matrix, (32, 32), border_mode="constant"))


class Flow(M.Module):
    """Motion between two images: correlation, an estimate, and the second image moved by it."""

    def __init__(self):
        super().__init__()
        self.features, self.estimate = conv(3, 8, 3, 2), M.Sequential(conv(49 + 8, 16), M.Conv2d(16, 2, 3, padding=1))

    def forward(self, x, y):
        one, two = self.features(x), self.features(y)
        cost = F.vision.correlation(one, two, max_displacement=3, pad_size=3)
        flow = F.transpose(self.estimate(F.concat([F.relu(cost), one], axis=1)), (0, 2, 3, 1))
        height, width = one.shape[2], one.shape[3]
        rows, columns = F.meshgrid(F.arange(height), F.arange(width), indexing="ij")
        grid = F.expand_dims(F.stack([columns, rows], axis=-1), 0)
        return flow, F.vision.remap(two, grid + flow, border_mode="constant")


class Siamese(M.Module):
    """A template is searched for in an image: its features are the kernel of a convolution."""

    def __init__(self):
        super().__init__()
        self.features, self.last = M.Sequential(conv(3, 8, 3, 2), conv(8, 8)), M.Conv2d(1, 2, 1)

    def forward(self, x, y):
        return self.last(F.conv2d(self.features(x), self.features(y)) * 0.01)


SIZES = ([f32(1, 3, 32, 32)], [f32(2, 3, 48, 40)])
network("unet_resize", "U-Net with bilinear resizing", lambda: UNet(False), *SIZES)
network("unet_transposed", "U-Net with transposed convolutions", lambda: UNet(True), *SIZES)
network(
    "super_resolution",
    "residual blocks, PReLU, pixel shuffle, bicubic",
    SuperResolution,
    [f32(1, 3, 16, 16)],
    [f32(2, 3, 20, 12)],
)
network("gan_generator", "transposed convolutions, output padding", Generator, [f32(2, 16)], [f32(5, 16)])
network("deformable", "deformable convolution", Deformable, *SIZES)
network("video", "3-D convolutions", Video, [f32(1, 3, 8, 16, 16)], [f32(2, 3, 4, 20, 12)])
network(
    "detector", "anchors, top k, suppression of boxes, RoI align", Detector, [f32(1, 3, 64, 64)], [f32(1, 3, 96, 64)]
)
network(
    "spatial_transformer",
    "perspective warp by an estimated matrix",
    SpatialTransformer,
    [f32(2, 3, 40, 40)],
    [f32(3, 3, 48, 40)],
)
network("flow", "correlation and remap", Flow, [f32(1, 3, 24, 24)] * 2, [f32(2, 3, 32, 20)] * 2)
network(
    "siamese",
    "convolution with a computed kernel",
    Siamese,
    [f32(1, 3, 32, 32), f32(1, 3, 12, 12)],
    [f32(1, 3, 40, 32), f32(1, 3, 16, 12)],
)
