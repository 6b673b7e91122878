from collections.abc import Callable

def set_sinks(
    launch: Callable[[str, str, tuple[int, int, int], tuple[int, int, int], int, int, list[int]], None],
    occupancy: Callable[[str, str, int, int], int],
) -> None: ...
