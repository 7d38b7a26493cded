"""Where nodes come from. One file a site, and a row here."""

from __future__ import annotations

import importlib
from typing import cast

from headway.sites.base import Node, PlannedNode, Site, SitePlan

__all__ = ["Node", "PlannedNode", "Site", "SitePlan", "site"]

SITES = {"local": "headway.sites.local:LocalSite", "emulated": "headway.sites.emulated:EmulatedSite"}


def site(kind: str) -> Site:
    module, _, name = SITES[kind].partition(":")
    return cast(Site, getattr(importlib.import_module(module), name)())
