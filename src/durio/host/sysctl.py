"""The id of this boot on systems without /proc: macOS and the BSDs."""

import ctypes

BOOT_ID_NAMES = (b"kern.bootsessionuuid", b"kern.boottime")  # macOS, then any BSD
BOOT_ID_BYTES_MAX = 64


def sysctl_boot_id() -> str | None:
    """Return the id of this boot; None on other systems."""
    try:
        sysctl = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return None
    for name in BOOT_ID_NAMES:
        text = ctypes.create_string_buffer(BOOT_ID_BYTES_MAX)
        size = ctypes.c_size_t(BOOT_ID_BYTES_MAX)
        if sysctl(name, text, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0:
            # kern.boottime is two machine words, not text: shown as hex digits.
            raw = text.raw[: size.value].rstrip(b"\0")
            return raw.decode() if name == BOOT_ID_NAMES[0] else raw.hex()
    return None
