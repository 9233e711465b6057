"""Recipes and handles on the fake model."""

import numpy as np

from omnistage.runtime.protocol.frames import Frame, Tensor
from omnistage.runtime.protocol.messages import SubmitRequest
from omnistage.runtime.protocol.recipe import Blob, JobSpec, blob_digest, handle_of


def encode(text="a", model="fake", **params):
    return handle_of(JobSpec.make(model, "encode", {"text": text, **params}, {}), "conditioning")


def sample(conditioning, latent=None, model="fake", **params):
    given = {"conditioning": conditioning} | ({"latent": latent} if latent else {})
    return _after("sample", "latent", given, model, params)


def decode(latent, model="fake", **params):
    return _after("decode", "images", {"latent": latent}, model, params)


def chain(text="a", **params):
    """encode -> sample -> decode."""
    return decode(sample(encode(text), **params))


def think(text="a", output="hidden", **params):
    return handle_of(JobSpec.make("fake", "think", {"text": text, **params}, {}), output)


def talk(hidden, latent=None, **params):
    given = {"hidden": hidden} | ({"latent": latent} if latent else {})
    return _after("talk", "codes", given, "fake", params)


def sound(codes, **params):
    return _after("sound", "audio", {"codes": codes}, "fake", params)


def speech(text="a", **params):
    """think -> talk -> sound."""
    return sound(talk(think(text)), **params)


def load(upload, model="fake", **params):
    digest, data = upload
    spec = JobSpec.make(model, "load", params, {"images": Blob(digest)})
    handle = handle_of(spec, "latent")
    return type(handle)(handle.recipe, handle.job, handle.output, {digest: data})


def upload_of(value=0.5, kind="images", size=16):
    """An upload: its digest and its bytes."""
    x = np.full(size, value, np.float32)
    data = Frame({"kind": kind}, {"x": Tensor.of(x)}).encode()
    return blob_digest(data), data


def request(*handles, owner="owner", client="client", **options):
    first, *others = (handle.recipe for handle in handles)
    return SubmitRequest(owner, client, first.merged(*others), **options)


def _after(stage, output, inputs, model, params):
    refs = {name: handle.ref for name, handle in inputs.items()}
    return handle_of(JobSpec.make(model, stage, params, refs), output, inputs.values())
