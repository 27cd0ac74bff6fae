"""TensorBoard's event files, in RUN/tensorboard, by the package `tensorboard` alone."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# none of these imports TensorFlow, even where there is one
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from flamejax.loggers import Logger, flat, scalars

START = "events.out.tfevents"  # of the names of event files


class TensorBoard(Logger):
    """Every event is in its file at once: there is no thread, and nothing is lost with one."""

    def __init__(self, values: Mapping[str, Any], folder: Path) -> None:
        events = folder / "tensorboard"
        events.mkdir(exist_ok=True)
        for old in events.glob(f"{START}.*"):
            old.unlink()
        self._file = RecordWriter((events / f"{START}.{int(time.time())}.flamejax").open("xb"))
        self._round = 0
        self._write(file_version="brain.Event:2")
        settings = flat(values, ".")
        plain = bool | int | float | str
        settings = {k: v if isinstance(v, plain) else str(v) for k, v in settings.items()}
        self._write(summary=hparams_pb(settings))
        self._write(summary=_text("config", (folder / "config.toml").read_text("utf-8")))

    def row(self, row: Mapping[str, Any]) -> None:
        self._round = row["round"]
        found = [Summary.Value(tag=name, simple_value=x) for name, x in scalars(row).items()]
        self._write(summary=Summary(value=found))

    def close(self, summary: Mapping[str, Any], picture: Path | None) -> None:
        self._write(summary=_text("summary", json.dumps(summary, indent=2)))
        if picture is not None:
            self._write(summary=_image("curves", picture.read_bytes()))
        self._file.close()

    def _write(self, **content: Any) -> None:
        event = Event(wall_time=time.time(), step=self._round, **content)
        self._file.write(event.SerializeToString())
        self._file.flush()


def _text(tag: str, text: str) -> Summary:
    """A text to be shown as it stands."""
    tensor = TensorProto(dtype=DT_STRING, string_val=[f"```\n{text}\n```".encode()])
    tensor.tensor_shape.dim.add(size=1)
    about = create_summary_metadata(display_name=tag, description="")
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=tensor)])


def _image(tag: str, png: bytes) -> Summary:
    width, height = struct.unpack(">II", png[16:24])
    image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=image)])
