"""YAML as people write it: a key that stands there twice is refused, of which YAML itself keeps the last silently."""

from typing import Any

import yaml


class Loader(yaml.SafeLoader):
    """Refuses a mapping in which a key stands twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands there twice", problem_mark=key.start_mark)
            keys.add(str(key.value))
        return node


def read_yaml(text: str) -> Any:
    """The content of a YAML file."""
    return yaml.load(text, Loader)
