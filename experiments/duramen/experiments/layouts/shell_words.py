"""What is known of programs: the ones that surely only read, and what writers write to."""

from duramen.experiments.layouts.tool_words import words

SILENT = words(  # show nothing of any place and change none
    "cd pushd popd echo true false : export unset set shopt printf test [ [[ sleep wait exit "
    "return break continue clear local readonly declare typeset umask ulimit shift let read for "
    "fi done }"
)
CLOCKS = words(  # show what is another at any time: no artifacts
    "pwd date ps uptime whoami id hostname env printenv df free top uname jobs nproc arch groups "
    "lscpu nvidia-smi w who tty lsof netstat ss locale"
)
SETTERS = words("date hostname")  # with an argument they may set what they show
KEYWORDS = words("if then elif else while until do ! {")  # a command follows
READERS = words(
    "cat head tail less more ls ll dir find fd tree wc stat file diff cmp sort uniq cut nl od xxd "
    "hexdump strings jq awk gawk sed column tac tr which type readlink realpath basename dirname "
    "md5sum sha1sum sha256sum du grep egrep fgrep rg ag ack zcat curl comm paste fold rev expand"
)
PATTERN_FIRST = words("grep egrep fgrep rg ag ack sed awk gawk jq tr")
FOLDER_IF_NONE = words("ls ll dir find fd tree du rg ag ack")
LISTERS = FOLDER_IF_NONE | words("grep egrep fgrep")
ALL_TARGETS = words("rm rmdir mkdir touch truncate mv unlink chmod chown chgrp shred tee")
LAST_TARGET = words("cp ln install")
PROGRAMS = SILENT | CLOCKS | KEYWORDS | READERS | ALL_TARGETS | LAST_TARGET | words(
    "git bash sh zsh dash ksh ash eval xargs apply_patch patch install find make exec source fetch"
)  # fmt: skip

SUBCOMMAND_READS: dict[str, frozenset[str]] = {
    "pip": words("list show freeze check"),
    "pip3": words("list show freeze check"),
    "npm": words("ls list view outdated"),
    "yarn": words("list why info"),
    "cargo": words("tree metadata"),
    "go": words("list version env"),
    "apt": words("list show search"),
    "conda": words("list info"),
    "brew": words("list info"),
    "dpkg": words("-l -L -s"),
}
SUBCOMMAND_CLOCKS: dict[str, frozenset[str]] = {
    "docker": words("ps images logs inspect version info top stats port"),
    "podman": words("ps images logs inspect version info top stats port"),
    "kubectl": words("get describe logs top explain version api-resources"),
    "systemctl": words("status is-active list-units"),
}
GIT_LISTS: dict[str, frozenset[str]] = {  # they only list with these words, or with none
    "branch": words("-a -r -v -vv --all --list --remotes --show-current --verbose --no-color"),
    "tag": words("-l --list -n"),
    "remote": words("-v show --verbose"),
    "stash": words("list show -p --stat"),
    "worktree": words("list --porcelain"),
    "config": words("-l --list --global --local --show-origin"),
    "reflog": words("show"),
}

WRAPPERS: dict[str, str] = {  # programs that run another one: their options that take a value
    "sudo": "-u -g -h -p -C -r -t -U -T --user --group",
    "doas": "-u",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "nohup": "",
    "timeout": "-s -k --signal --kill-after",
    "time": "",
    "env": "-u --unset",
    "stdbuf": "-i -o -e",
    "command": "",
    "builtin": "",
    "exec": "",
    "setsid": "",
    "unbuffer": "",
}
PROGRAMS |= WRAPPERS.keys() | SUBCOMMAND_READS.keys() | SUBCOMMAND_CLOCKS.keys()
WRAPPER_FLAGS = words(  # without a value and without effect on files
    "-E -H -n -b -k -i -p -v -0 --preserve-env --preserve-status --foreground --verbose"
)
RISKY_SETTINGS = ("GIT_", "LD_", "PAGER", "LESS", "BASH_ENV", "ENV", "PATH", "IFS", "SHELL")

OPTIONS: dict[str, str] = {  # readers' options whose value is no place
    "head": "-n -c --lines --bytes",
    "tail": "-n -c --lines --bytes",
    "cut": "-d -f -c -b",
    "grep": "-A -B -C -m --include --exclude --exclude-dir",
    "egrep": "-A -B -C -m --include --exclude --exclude-dir",
    "fgrep": "-A -B -C -m --include --exclude --exclude-dir",
    "rg": "-A -B -C -m -g -t -T -M --glob --type --max-count --max-depth",
    "tree": "-L -I -P",
    "du": "-d --max-depth",
    "ls": "-I --ignore",
    "sort": "-k -t -S",
    "fold": "-w",
    "nl": "-b -w",
    "xxd": "-l -s -c -g",
    "hexdump": "-n -s -e",
    "od": "-A -t -N -j -w",
    "stat": "-c -f --format --printf",
    "strings": "-n",
    "awk": "-F -v",
    "gawk": "-F -v",
}
WRITING_OPTIONS: dict[str, tuple[str, ...]] = {  # with these a reader is none
    "sort": ("-o", "--output", "--compress-program"),
    "tree": ("-o",),
    "less": ("-o", "-O", "--log", "-k"),
    "file": ("-C", "--compile"),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "ack": ("--pager", "--output", "--ackrc"),
    "awk": ("-f", "-i", "-l", "-E", "-o", "-p", "-d", "-D", "--"),
    "gawk": ("-f", "-i", "-l", "-E", "-o", "-p", "-d", "-D", "--"),
    "xxd": ("-r",),
    "find": ("-delete", "-ok", "-okdir", "-fprint", "-fls"),
    "fd": ("-x", "-X", "--exec"),
}
TWO_ENDS = words("uniq xxd")  # a second file is written
CURL_FLAGS = words(
    "-s -S -sS -L -i -I -f -k -v -sL -fsSL -sSL -sSf -sk -ks -sI -IL -sIL --silent --show-error "
    "--location --include --head --fail --insecure --verbose --compressed"
)
CURL_OPTIONS = words("-H -A -u -m -e -b --header --user-agent --max-time --connect-timeout --retry")
