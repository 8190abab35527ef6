"""One development server for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dev_server import Server, dev_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on the text device, ended after the module's last test."""
    pytest.importorskip("langgraph_api")
    with dev_server(tmp_path_factory.mktemp("server")) as started:
        yield started
