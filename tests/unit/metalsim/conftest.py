from __future__ import annotations

import pytest

from tests.unit.metalsim.launching import Launcher


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("metalsim-cache"))


@pytest.fixture(scope="session")
def counted(launch: Launcher) -> Launcher:
    return Launcher(launch.cache, "counted")
