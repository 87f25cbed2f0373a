"""The order in which the original lists a network's inputs: that of a hash map of the GNU C++ library."""

_MASK = (1 << 64) - 1
_SEED = 0xC70F6907
_MULTIPLIER = 0xC6A4A7935BD1E995
# How many buckets there are, and how many names at most.
_BUCKETS = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153, 2938679,
    5967347,
)  # fmt: skip


def _hash(text: bytes) -> int:
    """MurmurHash64A."""
    result = _SEED ^ (len(text) * _MULTIPLIER & _MASK)
    whole = len(text) & ~7
    for start in range(0, whole, 8):
        block = int.from_bytes(text[start : start + 8], "little") * _MULTIPLIER & _MASK
        block = (block ^ block >> 47) * _MULTIPLIER & _MASK
        result = (result ^ block) * _MULTIPLIER & _MASK
    if whole < len(text):
        result = (result ^ int.from_bytes(text[whole:], "little")) * _MULTIPLIER & _MASK
    result = (result ^ result >> 47) * _MULTIPLIER & _MASK
    return result ^ result >> 47


def listed(names: list[str]) -> list[str]:
    """Give the names in the order that the map has after they were put into it one by one."""
    hashes = {name: _hash(name.encode()) for name in names}
    sizes = iter(_BUCKETS)
    chain = _Chain(next(sizes))
    for count, name in enumerate(hashes):
        if count >= chain.size:
            grown = _Chain(next(sizes))
            for earlier in chain.names():
                grown.insert(earlier, hashes[earlier])
            chain = grown
        chain.insert(name, hashes[name])
    return chain.names()


class _Chain:
    """The map: one linked list, and for each bucket the name in the list before its first one, None for the head."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._next: dict[str | None, str] = {}
        self._before: dict[int, str | None] = {}
        self._first_bucket = 0

    def insert(self, name: str, hashed: int) -> None:
        """Put a name before the first one of its bucket, or to the front if there is none."""
        bucket = hashed % self.size
        if bucket in self._before:
            before = self._before[bucket]
        else:
            before = self._before[bucket] = None
            if None in self._next:
                self._before[self._first_bucket] = name
            self._first_bucket = bucket
        if before in self._next:
            self._next[name] = self._next[before]
        self._next[before] = name

    def names(self) -> list[str]:
        """Give the names from the head on."""
        found: list[str] = []
        name: str | None = None
        while name in self._next:
            name = self._next[name]
            found.append(name)
        return found
