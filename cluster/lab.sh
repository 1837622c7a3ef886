#!/usr/bin/env bash
# A cluster in a box: every server of a cluster file as a network namespace on this machine, links of the file's rates
# between them, shares of the processor and memory by cgroup, and an agent in each, slowed down by time dilation where the
# file says so. docs/cluster.md describes it.
set -euo pipefail

usage() {
    cat <<'END'
usage: lab.sh check              say what this machine lacks, and how to get it; exit code 77 if anything
       lab.sh up FILE            make the servers and links of a cluster file and start their agents
       lab.sh exec CMD...        run CMD as the command line's machine: it reaches all agents, at full speed
       lab.sh cluster            print the path of the file to give to --cluster inside: links are left to be measured
       lab.sh status             agents, their use of processor and memory, bytes over the links
       lab.sh down               end all that was started and remove all that was made
       lab.sh run FILE CMD...    up, exec, down: whatever happens, nothing is left

Needs root. Environment: EDGECUT, the program (target/release/edgecut next to this script, or the one in PATH);
EDGECUT_LAB, the name of the lab ("lab"): labs of different names may be up together; EDGECUT_LAB_RATE, the rate of every
link instead of the file's, such as 100Mbit/s.
END
}

LAB=${EDGECUT_LAB:-lab}
STATE=/run/edgecut-$LAB
# No name of a lab has a _ in it, so none is the beginning of another's.
DRIVER=edgecut-${LAB}_driver
# What an agent's cgroup may take beyond its --memory: the program itself, and what is on its way through sockets.
OWN_MEMORY=$((256 << 20))
# Seconds for an agent to begin to listen.
PATIENCE=20

say() { printf 'lab: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
space() { printf 'edgecut-%s_%s' "$LAB" "$1"; }
inside() { ip netns exec "$@"; }

# One line for each thing that is missing.
missing() {
    [ "$(id -u)" = 0 ] || echo "root: network namespaces and cgroups are root's to make (sudo $0 ...)"
    command -v ip >/dev/null && command -v tc >/dev/null || echo "ip and tc: apt-get install iproute2"
    command -v taskset >/dev/null && command -v nsenter >/dev/null || echo "taskset and nsenter: apt-get install util-linux"
    python3 -c 'import tomllib' 2>/dev/null || echo "python3 of at least 3.11, which reads TOML: apt-get install python3"
    [ -n "$(controllers)" ] || echo "cgroups with the controllers cpu and memory, v2 or v1: mount them below /sys/fs/cgroup"
    [ "$(id -u)" != 0 ] || ! command -v tc >/dev/null || kernel
}

# What the kernel refuses, tried on namespaces that are gone at once.
kernel() {
    local a=edgecut-try-$$-a b=edgecut-try-$$-b
    {
        if ! ip netns add "$a" || ! ip netns add "$b"; then
            echo "network namespaces: a kernel with CONFIG_NET_NS, and the right to make them (not an unprivileged container)"
        elif ! ip link add try netns "$a" type veth peer name try netns "$b"; then
            echo "veth links: a kernel with CONFIG_VETH (modprobe veth)"
        elif ! inside "$a" tc qdisc add dev try root tbf rate 1mbit burst 5k latency 50ms; then
            echo "links of a given rate: a kernel with CONFIG_NET_SCH_TBF (modprobe sch_tbf)"
        fi
        ip netns del "$a" || true
        ip netns del "$b" || true
    } 2>/dev/null
}

# "v2" or "v1", whichever has the controllers cpu and memory; nothing if neither has.
controllers() {
    if grep -qw cpu /sys/fs/cgroup/cgroup.controllers 2>/dev/null &&
        grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
        echo v2
    elif [ -d /sys/fs/cgroup/cpu ] && [ -d /sys/fs/cgroup/memory ]; then
        echo v1
    fi
}

check() {
    local lacking
    lacking=$(missing)
    [ -z "$lacking" ] && return 0
    while read -r line; do say "missing: $line"; done <<<"$lacking"
    return 77
}

# The cluster file as lines: "server NAME HOST PORT THREADS MEMORY CORES CPU DILATION" and "link FROM TO BITS_PER_S US", with -
# for what is not given; and a copy of it without links to $2. A dilated server whose cores are not given gets one, the cores
# of this process in turn.
read_cluster() {
    python3 - "$1" "$2" <<'END'
import os, re, sys, tomllib

def refuse(what):
    sys.exit(f"lab: {sys.argv[1]}: {what}")

def quantity(text, units, what):
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-zµ/%]+)\s*", text)
    if not found or found[2] not in units:
        refuse(f"{text!r} is no {what}: expected a number and one of {', '.join(units)}")
    return float(found[1]) * units[found[2]]

BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
RATES = {u + "/s": 8 * b for u, b in BYTES.items()} | {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}
TIMES = {"us": 1, "µs": 1, "ms": 1e3, "s": 1e6}

try:
    text = open(sys.argv[1]).read()
    file = tomllib.loads(text)
except (OSError, tomllib.TOMLDecodeError) as error:
    refuse(error)
if "tls" in file:
    refuse("a lab's agents speak without TLS: leave [tls] out")
names = [server.get("name") for server in file.get("server", [])]
cores_here, turn = sorted(os.sched_getaffinity(0)), 0
for server in file.get("server", []):
    name = server.get("name", "")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", name) or name == "driver":
        refuse(f"{name!r} is no name for a server of a lab")
    found = re.fullmatch(r"(\d+\.\d+\.\d+\.\d+):(\d+)", server.get("address", ""))
    if not found or found[1].startswith("127."):
        refuse(f"server {name} needs an address like 10.77.0.1:7600, IPv4 and not loopback")
    lab = server.get("lab", {})
    memory = int(quantity(server["memory"], BYTES, "size")) if "memory" in server else "-"
    share = quantity(lab["cpu"], {"%": 0.01}, "share") if "cpu" in lab else "-"
    if share != "-" and not 0.1 <= share <= 1024:
        refuse(f"{lab['cpu']!r} is no share of a processor: at least 10 %")
    dilation, cores = lab.get("dilate", "-"), lab.get("cores", "-")
    if dilation != "-":
        if type(dilation) not in (int, float) or not 1 <= dilation <= 1000:
            refuse(f"{dilation!r} is no time dilation: a number from 1 to 1000")
        if cores == "-":
            cores, turn = cores_here[turn % len(cores_here)], turn + 1
    print("server", name, found[1], found[2], server.get("threads", "-"), memory, cores, share, dilation)
for link in file.get("link", []):
    rate = quantity(os.environ.get("EDGECUT_LAB_RATE") or link["rate"], RATES, "rate")
    latency = quantity(link["latency"], TIMES, "time")
    ends = (link.get("from"), link.get("to"))
    if not all(end in names for end in ends):
        refuse(f"a link from {ends[0]} to {ends[1]}: expected names of servers")
    for a, b in [ends, ends[::-1]] if link.get("both_ways") else [ends]:
        print("link", a, b, int(rate), latency)
kept, skipping = [], False
for line in text.splitlines():
    if re.match(r"\s*\[", line):
        skipping = bool(re.match(r"\s*\[\[\s*link\s*\]\]", line))
    if not skipping:
        kept.append(line)
with open(sys.argv[2], "w") as out:
    out.write("\n".join(kept) + "\n")
END
}

# Limits of server $1 on cores $4: $2 bytes, share $3 of a processor; - for none. Prints the files that a process joins them by.
# Servers go ahead of what else this machine does, so that they are disturbed as little as machines of their own would be.
make_cgroup() {
    local name=$1 memory=$2 cpu=$3 cores=$4 quota period folder
    [ "$memory" = - ] || memory=$((memory + OWN_MEMORY))
    # Turns of a tick of the kernel, the shortest that it keeps and so the nearest to a slower processor, with 1 ms of it at
    # least, the shortest that it takes. All of one core is not limited: even a limit that is never reached would take a
    # tenth of it.
    read -r quota period < <(awk -v share="$cpu" -v cores="$cores" 'BEGIN {
        if (cores ~ /^[0-9]+$/ && share + 0 >= 1) share = "-"
        period = share == "-" || share > 0.25 ? 4000 : int(1000 / share) + 1
        print int(share == "-" ? 0 : share * period), period
    }')
    if [ "$(controllers)" = v2 ]; then
        folder=/sys/fs/cgroup/edgecut-$LAB
        echo '+cpu +memory' >/sys/fs/cgroup/cgroup.subtree_control
        mkdir -p "$folder"
        echo '+cpu +memory' >"$folder/cgroup.subtree_control"
        mkdir -p "$folder/$name"
        echo 10000 | tee "$folder/cpu.weight" >"$folder/$name/cpu.weight"
        [ "$quota" = 0 ] || echo "$quota $period" >"$folder/$name/cpu.max"
        [ "$memory" = - ] || echo "$memory" >"$folder/$name/memory.max"
        [ "$memory" = - ] || echo 0 >"$folder/$name/memory.swap.max" 2>/dev/null || true
        echo "$folder/$name/cgroup.procs"
    else
        folder=edgecut-$LAB/$name
        mkdir -p "/sys/fs/cgroup/cpu/$folder" "/sys/fs/cgroup/memory/$folder"
        echo 262144 | tee "/sys/fs/cgroup/cpu/edgecut-$LAB/cpu.shares" >"/sys/fs/cgroup/cpu/$folder/cpu.shares"
        if [ "$quota" != 0 ]; then
            echo "$period" >"/sys/fs/cgroup/cpu/$folder/cpu.cfs_period_us"
            echo "$quota" >"/sys/fs/cgroup/cpu/$folder/cpu.cfs_quota_us"
        fi
        [ "$memory" = - ] || echo "$memory" >"/sys/fs/cgroup/memory/$folder/memory.limit_in_bytes"
        echo "/sys/fs/cgroup/cpu/$folder/cgroup.procs"
        echo "/sys/fs/cgroup/memory/$folder/cgroup.procs"
    fi
}

# Shapes what leaves interface $2 of namespace $1 to $3 bit/s and delays it by $4 us.
shape() {
    local space=$1 interface=$2 rate=$3 latency=$4 burst
    # What may go at once is free of the rate, so little of it; but the kernel sends piece by piece on the core that
    # computes, for which a network card asks none of its time: pieces of 128 us take a quarter of what those of 32 us do.
    # Never less than two packets.
    burst=$((rate / 8 / 7812))
    burst=$((burst < 3100 ? 3100 : burst > 60000 ? 60000 : burst))
    # A segment longer than the burst, each of its packets' headers counted, would be cut into packets one by one.
    inside "$space" ip link set "$interface" gso_max_size $((burst * 95 / 100)) 2>/dev/null || true
    inside "$space" tc qdisc add dev "$interface" root handle 1: tbf rate "${rate}bit" burst $burst latency 200ms
    if awk -v us="$latency" 'BEGIN { exit !(us > 0) }' &&
        ! inside "$space" tc qdisc add dev "$interface" parent 1:1 netem delay "${latency}us" limit 100000 2>/dev/null; then
        : >"$STATE/no-netem"
    fi
}

# A link between namespaces $1 and $2, whose interfaces there are $3 and $4, to the other's address $5 and $6.
join_up() {
    ip link add "$3" netns "$1" type veth peer name "$4" netns "$2"
    inside "$1" ip link set "$3" up
    inside "$2" ip link set "$4" up
}

# A route in namespace $1 to $2 by interface $3 from address $4, with the congestion control that most machines have: some
# pace what they send by timers, which take the time of the cores that compute.
route() {
    inside "$1" ip route add "$2/32" dev "$3" src "$4" congctl cubic 2>/dev/null ||
        inside "$1" ip route add "$2/32" dev "$3" src "$4"
}

up() {
    local file=$1 program lines agent
    check || exit $?
    [ ! -e "$STATE" ] || fail "$STATE is there already: this lab is up (lab.sh down, or another EDGECUT_LAB)"
    program=${EDGECUT:-$(dirname "$0")/../target/release/edgecut}
    [ -x "$program" ] || program=$(command -v edgecut) || fail "no edgecut program: set EDGECUT=/path/to/edgecut"
    program=$(realpath "$program")
    mkdir -p "$STATE"
    # A lab that cannot be made whole leaves nothing.
    trap down EXIT
    lines=$(read_cluster "$file" "$STATE/cluster.toml")
    local -a names=() addresses=()
    local -A rates=() latencies=()
    local kind name address port threads memory cores cpu dilation from to rate latency
    while read -r kind from to rate latency; do
        [ "$kind" = link ] || continue
        rates[$from/$to]=$rate
        latencies[$from/$to]=$latency
    done <<<"$lines"

    local driver_address=10.255.255.254
    ip netns add "$DRIVER"
    inside "$DRIVER" ip link set lo up
    inside "$DRIVER" ip address add $driver_address/32 dev lo
    while read -r kind name address _; do
        [ "$kind" = server ] || continue
        ip netns add "$(space "$name")"
        inside "$(space "$name")" ip link set lo up
        inside "$(space "$name")" ip address add "$address/32" dev lo
        join_up "$DRIVER" "$(space "$name")" "s${#names[@]}" driver
        route "$DRIVER" "$address" "s${#names[@]}" $driver_address
        route "$(space "$name")" $driver_address driver "$address"
        for other in "${!names[@]}"; do
            local a b
            a=$(space "${names[$other]}") b=$(space "$name")
            join_up "$a" "$b" "s${#names[@]}" "s$other"
            route "$a" "$address" "s${#names[@]}" "${addresses[$other]}"
            route "$b" "${addresses[$other]}" "s$other" "$address"
            local there=${names[$other]}/$name back=$name/${names[$other]}
            [ -z "${rates[$there]:-}" ] || shape "$a" "s${#names[@]}" "${rates[$there]}" "${latencies[$there]}"
            [ -z "${rates[$back]:-}" ] || shape "$b" "s$other" "${rates[$back]}" "${latencies[$back]}"
        done
        names+=("$name")
        addresses+=("$address")
    done <<<"$lines"
    [ "${#names[@]}" -gt 0 ] || fail "$file: no [[server]]"
    [ ! -e "$STATE/no-netem" ] || say "this kernel has no netem (CONFIG_NET_SCH_NETEM): the file's latencies are not added to the links' own"

    while read -r kind name address port threads memory cores cpu dilation; do
        [ "$kind" = server ] || continue
        agent=("$program" agent --name "$name" --listen "$address:$port" --insecure)
        [ "$threads" = - ] || agent+=(--threads "$threads")
        [ "$memory" = - ] || agent+=(--memory "${memory}B")
        [ "$dilation" = - ] || agent+=(--dilate "$dilation")
        [ "$cores" = - ] || agent=(taskset --cpu-list "$cores" "${agent[@]}")
        local -a groups
        mapfile -t groups < <(make_cgroup "$name" "$memory" "$cpu" "$cores")
        [ ${#groups[@]} -gt 0 ] || fail "$name: its share of processor and memory cannot be set (cgroups)"
        (
            for group in "${groups[@]}"; do echo "$BASHPID" >"$group"; done
            # Not by `ip netns exec`, which hides the cgroups that the agent reads its share from.
            exec nsenter --net="/run/netns/$(space "$name")" "${agent[@]}"
        ) >"$STATE/$name.out" 2>"$STATE/$name.log" </dev/null &
        echo $! >"$STATE/$name.pid"
    done <<<"$lines"
    for name in "${names[@]}"; do
        for ((tenths = 0; ; tenths++)); do
            ! grep -q '^listening on' "$STATE/$name.out" || break
            if [ $tenths -ge $((PATIENCE * 10)) ] || ! kill -0 "$(<"$STATE/$name.pid")" 2>/dev/null; then
                say "the agent of $name did not start:"
                cat "$STATE/$name.log" >&2
                exit 1
            fi
            sleep 0.1
        done
    done
    trap - EXIT
    say "${#names[@]} servers are up: lab.sh exec edgecut ... --cluster $STATE/cluster.toml"
}

# Whether process $1 is gone, or goes within five seconds.
gone() {
    local tenths
    for ((tenths = 0; tenths < 50; tenths++)); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}

# Takes down the folders of a cgroup, which the kernel allows once the last process has left them.
remove_cgroup() {
    local tenths
    for ((tenths = 0; tenths < 50; tenths++)); do
        [ -d "$1" ] || return 0
        find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        [ ! -d "$1" ] || sleep 0.1
    done
    say "$1 is still in use: processes $(find "$1" -name cgroup.procs -exec cat {} + | tr '\n' ' ')"
}

down() {
    local pid pids file folder space
    for file in "$STATE"/*.pid; do
        [ -e "$file" ] || continue
        pid=$(<"$file")
        # An agent that is gone may have left its number to another.
        [ "$(ip netns identify "$pid" 2>/dev/null)" = "$(space "$(basename "$file" .pid)")" ] || continue
        kill "$pid" 2>/dev/null || continue
        gone "$pid" || kill -9 "$pid" 2>/dev/null || true
    done
    for space in $(ip netns list 2>/dev/null | awk -v of="edgecut-${LAB}_" 'index($1, of) == 1 { print $1 }'); do
        # What was run inside and is still there.
        mapfile -t pids < <(ip netns pids "$space")
        for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
        for pid in "${pids[@]}"; do gone "$pid" || kill -9 "$pid" 2>/dev/null || true; done
        ip netns del "$space" || true
    done
    for folder in "/sys/fs/cgroup/cpu/edgecut-$LAB" "/sys/fs/cgroup/memory/edgecut-$LAB" "/sys/fs/cgroup/edgecut-$LAB"; do
        remove_cgroup "$folder"
    done
    rm -rf "$STATE"
}

status() {
    [ -d "$STATE" ] || fail "no lab of the name $LAB is up"
    local file name pid state folder
    for file in "$STATE"/*.pid; do
        name=$(basename "$file" .pid)
        pid=$(<"$file")
        state=gone
        # An agent computes in its child.
        ! kill -0 "$pid" 2>/dev/null || state=$(ps -o pid=,psr=,time=,rss= -p "$(pgrep -P "$pid" || echo "$pid")" | awk '{ print "pid " $1 ", core " $2 ", " $3 " of processor, " int($4 / 1024) " MiB" }')
        printf '%s: %s\n' "$name" "$state"
        for folder in "/sys/fs/cgroup/cpu/edgecut-$LAB/$name" "/sys/fs/cgroup/edgecut-$LAB/$name"; do
            [ ! -e "$folder/cpu.stat" ] || awk '/nr_throttled/ { print "  throttled in " $2 " periods" }' "$folder/cpu.stat"
        done
        inside "$(space "$name")" tc -s qdisc show 2>/dev/null |
            awk '/qdisc tbf/ { at = $5; rate = $0; sub(/.*rate /, "", rate); sub(/ .*/, "", rate) }
                 /Sent/ && at { print "  link " at ": " rate ", sent " $2 " bytes"; at = "" }'
    done
}

execute() {
    [ -d "$STATE" ] || fail "no lab of the name $LAB is up"
    exec ip netns exec "$DRIVER" "$@"
}

[[ $LAB =~ ^[a-zA-Z0-9-]{1,20}$ ]] || { say "EDGECUT_LAB is \"$LAB\": a name of letters, digits and -, up to 20"; exit 2; }

case ${1:-} in
check) check ;;
up) [ $# = 2 ] || { usage >&2; exit 2; }; up "$2" ;;
down) [ "$(id -u)" = 0 ] || fail "needs root"; down ;;
status) status ;;
cluster) echo "$STATE/cluster.toml" ;;
exec) shift; [ $# -gt 0 ] || { usage >&2; exit 2; }; execute "$@" ;;
run)
    [ $# -ge 3 ] || { usage >&2; exit 2; }
    file=$2
    shift 2
    up "$file"
    trap down EXIT
    trap 'exit 130' INT TERM
    inside "$DRIVER" "$@"
    ;;
help | --help | -h) usage ;;
*) usage >&2; exit 2 ;;
esac
