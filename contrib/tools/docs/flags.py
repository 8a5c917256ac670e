"""The flags that pages may name: those of gorun, which its completion lists, and a few of other programs."""

import re
import shlex
import subprocess
from dataclasses import dataclass

# Flags of other programs that pages name without the program. Those of programs in contrib stand with make's variables.
OTHERS = (
    "--cmdfile --find-links --kill-whom --network --share --signal --wheel --mbit --out --tensorflow --torch --stock "
    "--rounds --operation --private --busy --rows --lab --large --nic --old --ranks --library"
)
# Flags of gorun that its help does not show: gorun gives them to itself.
HIDDEN = {"worker": "--sweep --daemon"}


@dataclass
class Flags:
    """The long flags of gorun: of a launch, and of each command."""

    launch: set[str]
    commands: dict[str, set[str]]

    @classmethod
    def of(cls, gorun: str) -> "Flags":
        """Ask a binary for its flags, as the tab key of a shell does."""

        def may_be(*words: str) -> set[str]:
            asked = [gorun, "completion", "words", *words]
            text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            return {name for name, meaning in (line.split("\t") for line in text.splitlines()) if meaning}

        commands = {name: {"--help"} | may_be(name, "--") for name in may_be("")}
        found = cls({"--help", "--version"} | may_be("--"), commands)
        if len(found.launch) < 50 or len(found.commands) < 10:
            raise SystemExit(f"docs: error: {gorun} completion words lists {len(found.launch)} flags of a launch "
                             f"and {len(found.commands)} commands; flags.py cannot read it any more")
        for name, hidden in HIDDEN.items():
            found.commands[name].update(hidden.split())
        return found

    def any(self) -> set[str]:
        """Return the flags of all commands."""
        return self.launch.union(*self.commands.values())

    def wrong(self, code: str, others: bool) -> list[str]:
        """Return what is wrong with the flags in a line or span of code; others are those of any program."""
        faults = []
        at = re.search(r"(?:^|[\s;&|(/])(gorun|horovodrun) +", code)
        if at and not re.match(r"\S*:", code):
            faults += self.wrong_command(at[1], code[at.end():])
        elif not others:
            known = self.any().union(OTHERS.split())
            # A line that starts another program is about that one's flags.
            program = re.match(r"\s*(?:\$ |sudo |[A-Z_]+=\S+ )*(?:\S*/)?([\w.-]+) +-", code)
            if program:
                return []
            for flag in re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", code):
                if flag not in known and flag.replace("--no-", "--", 1) not in known:
                    faults.append(f"{flag} is no flag of gorun or of a program that flags.py lists")
        return faults

    def wrong_command(self, program: str, rest: str) -> list[str]:
        """Return what is wrong with a command line of gorun, up to the program that it starts."""
        try:
            words = shlex.split(rest, comments=True)
        except ValueError:
            words = rest.split()
        own, what = self.launch, program
        if words and words[0] in self.commands:
            own, what = self.commands[words[0]], f"{program} {words[0]}"
            if words[0] == "bench":
                own = own | self.launch
        faults = []
        for word in words:
            if re.match(r"(python[\d.]*|bash|sh|--|\./\S+|\S+\.py|env|[|;&>]+)$", word):
                break
            flag = re.match(r"--[a-zA-Z][\w-]*", word)
            if flag and flag[0] not in own and not (flag[0].startswith("--no-") and "--" + flag[0][5:] in own):
                faults.append(f"{flag[0]} is no flag of {what}")
        return faults
