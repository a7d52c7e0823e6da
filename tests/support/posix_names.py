"""What Windows lacks of Python's modules, and of the names in two of them."""

import re

MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    "os": re.compile(
        r"fork|forkpty|get(e?uid|e?gid|pgid|pgrp|loadavg)|killpg|setsid|setpgid|uname|wait(3|4|id)?|WNOHANG"
        r"|sched_\w+|sysconf|mkfifo|mknod|chown|pread|pwrite|posix_fallocate"
        r"|O_(NOFOLLOW|NONBLOCK|NOCTTY|CLOEXEC|DIRECTORY)"
    ),
    "signal": re.compile(
        r"SIG(KILL|HUP|QUIT|USR1|USR2|ALRM|STOP|CONT|CHLD|PIPE|BUS)|SIG_(BLOCK|SETMASK|UNBLOCK)"
        r"|alarm|setitimer|pthread_\w+"
    ),
}
