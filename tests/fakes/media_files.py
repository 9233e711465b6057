"""Small files of each sort, and their URLs."""

import base64
from io import BytesIO

import av
import numpy as np
import soundfile
from PIL import Image

RATE = 8000
FPS = 10


def data_url(data, kind="image/png"):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def picture(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def image_file(pixels, form="PNG", **options):
    file = BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def wave(samples=400, channels=1):
    """Float32 `[samples, channels]`, the first exact in 16 bits, each half as loud as the last."""
    steps = np.rint(np.sin(np.arange(samples) / 9) * 16384) / 32768
    return np.stack([steps / 2**i for i in range(channels)], 1).astype(np.float32)


def sound_file(samples, form="WAV", **options):
    file = BytesIO()
    soundfile.write(file, samples, RATE, format=form, **options)
    return file.getvalue()


def film(frames=5, height=16, width=24):
    return picture(frames, height, width, 3, seed=1)


def film_file(frames, form="mp4"):
    """A file that keeps every pixel."""
    file = BytesIO()
    codec, layout = {"mp4": ("libx264rgb", "rgb24"), "matroska": ("ffv1", "bgr0")}[form]
    with av.open(file, "w", format=form) as container:
        stream = container.add_stream(codec, rate=FPS)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = layout
        if form == "mp4":
            stream.options = {"qp": "0", "preset": "ultrafast"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def film_without_pictures():
    file = BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave(1024).T, format="fltp", layout="mono")
        frame.rate = RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return file.getvalue()


def quarter_turned(mp4):
    """The film with the note that it is to be shown turned by 90 degrees clockwise."""
    at = mp4.index(b"tkhd") + 44  # the matrix of ISO 14496-12, 8.3.2
    one = 1 << 16
    matrix = np.array([0, one, 0, -one, 0, 0, 0, 0, 1 << 30], ">i4").tobytes()
    return mp4[:at] + matrix + mp4[at + len(matrix) :]
