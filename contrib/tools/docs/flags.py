"""The flags that pages may name: those of gorun, which its completion lists, and a few of other programs."""

import re
import shlex
import subprocess
from dataclasses import dataclass

# Flags of other programs that pages name, by the program.
OTHERS = {
    "horovodrun": "--gloo --mpi --js --autotune",
    "torchrun": (
        "--nproc-per-node --nproc_per_node --nnodes --node-rank --node_rank --master-addr --master-port --rdzv-backend "
        "--rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts --standalone --monitor-interval --local-ranks-filter "
        "--log-dir --redirects --tee --role --local-addr --run-path --logs-specs --duplicate-stdout-filters "
        "--duplicate-stderr-filters --event-log-handler --start-method --signals-to-handle --numa-binding "
        "--virtual-local-rank --local-rank --local_rank --log-line-prefix-template"
    ),
    "mpirun": (
        "--mca --bind-to --map-by --rank-by --report-bindings --oversubscribe --allow-run-as-root "
        "--prefix --tag-output --get-stack-traces "
        "--display --display-allocation --rankfile --rf --npersocket --cpus-per-proc --cpus-per-rank --preload-binary "
        "--output --output-directory --report-pid --default-hostfile --use-hwthread-cpus "
        "--display-devel-allocation --display-devel-map --display-diffable-map --display-topo --do-not-launch "
        "--bind-to-core --bind-to-socket --bind-to-none --bycore --bysocket --cpu-set --cpu-list --tune --preload-files"
    ),
    "srun": (
        "--ntasks-per-node --ntasks --nodes --gres --mpi --cpus-per-task --cpu-bind --signal --requeue --time --array "
        "--overlap --dependency --no-kill --nodelist --nodefile --relative --exclude --ntasks-per-socket "
        "--ntasks-per-core --mem-bind --distribution --gpus-per-task --gpus-per-node --gpus-per-socket --gpu-bind "
        "--export --chdir --error "
        "--input --label --unbuffered --multi-prog --kill-on-bad-exit --wait --overcommit --partition --account --qos "
        "--exclusive --job-name --mem --mem-per-cpu --constraint --reservation --immediate --test-only"
    ),
    "pip": "--user --upgrade --break-system-packages --require-hashes --no-deps --index-url --find-links",
    "uv": "--wheel",
    "git": "--ff-only --tags",
    "apt-get": "--no-install-recommends",
    "go": "--race",
    "lab": "--name --share --mbit --delay --loss",
    "vmtoolsd": "--cmdfile",
    "systemctl": "--user --now --kill-whom",
    "docker": "--pids-limit --rm --network --gpus --privileged --shm-size --ulimit",
    "kubectl": "--namespace --dry-run --replicas",
    "ssh": "",
    "gpg": "--verify --import",
    "sha256sum": "--check --ignore-missing",
    "firewall-cmd": "--permanent --add-port --reload",
    "bash": "--norc --login",
}
# Parts of flags, and flags of the project's own programs in contrib, which pages name by make variables.
CONTRIB = (
    "--private --busy --rows --library --host-disc --operation --rounds --horovod --nic --large --lab --ranks --quick "
    "--mbit --old --keep --python --tensorflow --torch --stock --steps --out"
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

    def wrong(self, code: str) -> list[str]:
        """Return what is wrong with the flags in a line or span of code."""
        faults = []
        at = re.search(r"(?:^|[\s;&|(/])(gorun|horovodrun) +", code)
        if at and not re.match(r"\S*:", code):
            faults += self.wrong_command(at[1], code[at.end():])
        else:
            known = self.any().union(CONTRIB.split(), *(flags.split() for flags in OTHERS.values()))
            # A line that starts another program is about that one's flags.
            program = re.match(r"\s*(?:\$ |sudo |[A-Z_]+=\S+ )*(?:\S*/)?([\w.-]+) +-", code)
            if program and program[1] not in OTHERS:
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
        if program == "horovodrun":
            own = own.union(OTHERS["horovodrun"].split())
        faults = []
        for word in words:
            if re.match(r"(python[\d.]*|bash|sh|--|\./\S+|\S+\.py|env|[|;&>]+)$", word):
                break
            flag = re.match(r"--[a-zA-Z][\w-]*", word)
            if flag and flag[0] not in own and not (flag[0].startswith("--no-") and "--" + flag[0][5:] in own):
                faults.append(f"{flag[0]} is no flag of {what}")
        return faults
