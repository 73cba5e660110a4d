"""The data sets that have a name: sizes, features, protocol, source and licence. To add one, add an entry.

:mod:`shorthash.data.datasets` reads and downloads them; the command line and the guide list them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shorthash.data.splits import PerClassQueries, Protocol, RandomQueries

__all__ = ["CATALOGUE", "Entry", "Original", "default_protocol"]

CNN = "EfficientNet-Lite0 (ImageNet weights), pooled features at {} px, first 256 principal components, int8"


@dataclass(frozen=True)
class Original:
    """A file that the publisher of a data set offers.

    Attributes
    ----------
    url : where it is
    checksum : "md5:..." or "sha256:..." as the publisher or widely used loaders state it; "" if we know none for
        certain: then the sha256 of the first download is stored beside the file, and later ones are compared with it
    """

    url: str
    checksum: str = ""

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Entry:
    """A data set.

    Attributes
    ----------
    title : its usual name
    rows, dims, classes : sizes
    features : how the features were made
    file : the feature file; "" if features are read from the original files
    protocol : which rows are queries, training rows and database
    obtain : how a user gets the original
    originals : its files, if a program may download them
    licence : what its publisher says about use
    reader : "npz", "idx" or "sklearn"
    several : whether a row may have several labels
    """

    title: str
    rows: int
    dims: int
    classes: int
    features: str
    file: str
    protocol: Protocol
    obtain: str
    licence: str
    originals: tuple[Original, ...] = field(default=())
    reader: str = "npz"
    several: bool = False


_CALTECH_GIST = Entry(
    title="CALTECH-101",
    rows=8677,
    dims=512,
    classes=101,
    features="GIST-512 of grey images stretched to 128 x 128 px: 4 scales x 8 orientations x 4 x 4 blocks, reflect "
    "padding; without the background class",
    file="caltech101_gist512.npz",
    protocol=RandomQueries(n_queries=1000),
    obtain="caltech-101.zip from data.caltech.edu/records/mzrjq-6wc02",
    licence="CC BY 4.0, by the Caltech data repository; cite Fei-Fei, Fergus and Perona, 2004",
    originals=(Original("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip"),),
)


def _pixels(name: str, title: str, licence: str, base: str, checksums: tuple[str, str, str, str]) -> Entry:
    """MNIST, or a data set published in the same form: pixels and labels for training, pixels and labels for test."""
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return Entry(
        title=title,
        rows=70_000,
        dims=784,
        classes=10,
        features="the 28 x 28 grey values; training rows, then test rows",
        file="",
        protocol=PerClassQueries(per_class=100, n_train=5000),
        obtain=f"shorthash datasets fetch {name}",
        licence=licence,
        originals=tuple(
            Original(f"{base}/{stem}-ubyte.gz", f"md5:{checksum}")
            for stem, checksum in zip(stems, checksums, strict=True)
        ),
        reader="idx",
    )


CATALOGUE: dict[str, Entry] = {
    "cifar10": Entry(
        title="CIFAR-10",
        rows=60_000,
        dims=256,
        classes=10,
        features=CNN.format(224),
        file="cifar10_cnn256.npz",
        protocol=PerClassQueries(per_class=100, n_train=5000),
        obtain="cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
        licence="no licence stated; free for research, cite Krizhevsky, 2009",
        originals=(
            Original("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),
        ),
    ),
    "imagenet100": Entry(
        title="ImageNet-100",
        rows=60_000,
        dims=256,
        classes=100,
        features=CNN.format(224) + "; the 100 classes x 600 images (84 px) of mini-ImageNet stand in for ImageNet-100",
        file="imagenet100_cnn256.npz",
        protocol=PerClassQueries(per_class=50, n_train=10_000),
        obtain="register at image-net.org, then take the images that mini-ImageNet (Vinyals et al., 2016) lists",
        licence="ImageNet terms of access: non-commercial research and education only",
    ),
    "caltech101": _CALTECH_GIST,
    "caltech101-cnn": replace(
        _CALTECH_GIST,
        title="CALTECH-101, CNN",
        dims=256,
        features=CNN.format(224) + "; without the background class",
        file="caltech101_cnn256.npz",
    ),
    "voc2012": Entry(
        title="PASCAL VOC 2012",
        rows=11_536,
        dims=256,
        classes=20,
        features=CNN.format(192) + "; trainval images, one column per class",
        file="voc2012_cnn256.npz",
        protocol=RandomQueries(n_queries=1000, n_train=4000),
        obtain="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012",
        licence="Flickr images: Flickr terms of use; annotations: see the challenge's page",
        originals=(
            Original(
                "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
                "md5:6cd6e144f989b92b3379bac3b3de84fd",
            ),
        ),
        several=True,
    ),
    "digits": Entry(
        title="Digits",
        rows=1797,
        dims=64,
        classes=10,
        features="the 8 x 8 grey values",
        file="",
        protocol=RandomQueries(n_queries=300),
        obtain="comes with scikit-learn",
        licence="CC BY 4.0 (UCI: Optical Recognition of Handwritten Digits)",
        reader="sklearn",
    ),
    "mnist": _pixels(
        "mnist",
        "MNIST",
        "CC BY-SA 3.0, as widely stated; LeCun, Cortes and Burges, 1998",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": _pixels(
        "fashion-mnist",
        "Fashion-MNIST",
        "MIT; Xiao, Rasul and Vollgraf, 2017",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
}


def default_protocol(name: str, n_rows: int | None = None) -> Protocol:
    """The protocol of an entry; for other data up to 1000 random queries, but at most a tenth of the rows.

    Examples
    --------
    >>> default_protocol("cifar10").n_train, default_protocol("own.npz", n_rows=500).n_queries
    (5000, 50)
    """
    if name in CATALOGUE:
        return CATALOGUE[name].protocol
    return RandomQueries(n_queries=1000 if n_rows is None else max(1, min(1000, n_rows // 10)))
