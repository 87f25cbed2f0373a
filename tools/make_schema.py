"""Writes `schema_pb2.py` and its types from `schema.proto`.

Needs `grpcio-tools==1.74.*`, whose generated code runs on protobuf 6.31 and later.

    python tools/make_schema.py
"""

from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]

SOURCES = Path(__file__).parent.parent / "src"
SCHEMA = SOURCES / "litehouse" / "formats" / "mindir" / "schema.proto"


def main() -> None:
    arguments = ["protoc", f"-I{SOURCES}", f"--python_out={SOURCES}", f"--pyi_out={SOURCES}", str(SCHEMA)]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed; its message is above")


if __name__ == "__main__":
    main()
