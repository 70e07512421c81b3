"""Create folders that only this user can open."""

import os
from stat import S_ISDIR

_OWN_FOLDER = 0o700


def make_own_folder(path: str) -> bool:
    """Create a private folder; False if it belongs to another user, or is a link."""
    try:
        os.makedirs(path, mode=_OWN_FOLDER, exist_ok=True)
        status = os.lstat(path)
        if not S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        os.chmod(path, _OWN_FOLDER)
    except OSError:
        return False
    return True
