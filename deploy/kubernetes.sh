#!/usr/bin/env bash
# Writes the manifests of agents in Kubernetes: for each machine an agent, and a secret with the machine's own key alone.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: kubernetes.sh CERTS MACHINE... | kubectl apply -f -
CERTS is the folder that `edgecut cluster init` made. A MACHINE is a server of the cluster file whose name is that
machine's label kubernetes.io/hostname (kubectl get nodes -L kubernetes.io/hostname). Run it again after `edgecut cluster init` or `revoke`: agents read new files without a restart.
TEXT
}

fail() {
    echo "kubernetes.sh: $*" >&2
    exit 2
}

# Whether a certificate has the role of an agent: its organization, as plain text between the numbers.
is_agent() {
    [ "$(sed '/^-----/d' "$1" | base64 -d | grep -ac 'edgecut:agent')" != 0 ]
}

# The content of a file, as secrets have it.
encoded() {
    base64 <"$1" | tr -d '\n'
}

# A file as an entry of a config map.
entry() {
    echo "  $1: |"
    sed 's/^/    /' "$2"
}

shared() {
    cat <<TEXT
apiVersion: v1
kind: Namespace
metadata:
  name: edgecut
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: edgecut-authority
  namespace: edgecut
data:
$(entry ca.pem "$CERTS/ca.pem")
$(entry revoked.pem "$CERTS/revoked.pem")
---
# The addresses of all agents by one name: edgecut-agents.edgecut.svc.
apiVersion: v1
kind: Service
metadata:
  name: edgecut-agents
  namespace: edgecut
spec:
  clusterIP: None
  selector: { app: edgecut-agent }
  ports:
    - { name: grpc, port: 7600, targetPort: grpc }
TEXT
}

agent() {
    cat <<TEXT
---
apiVersion: v1
kind: Secret
metadata:
  name: edgecut-$1
  namespace: edgecut
type: kubernetes.io/tls
data:
  tls.crt: $(encoded "$CERTS/$1.pem")
  tls.key: $(encoded "$CERTS/$1.key")
---
TEXT
    sed "/^#/d; s/MACHINE/$1/g" "$HERE/kubernetes.yaml"
}

case ${1:-} in
-h | --help) usage; exit 0 ;;
esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
HERE=$(cd "$(dirname "$0")" && pwd)
CERTS=$1
shift
# Before anything is written: `kubectl apply` would apply the part.
for machine in "$@"; do
    [[ $machine =~ ^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$ && ${#machine} -le 63 ]] ||
        fail "$machine: expected the name of a machine in Kubernetes: at most 63 lower-case letters, digits, dots and dashes"
    for file in "$CERTS/$machine.pem" "$CERTS/$machine.key"; do
        [ -r "$file" ] || fail "$file cannot be read: expected what \`edgecut cluster init\` writes for a server called $machine"
    done
    # An operator's key commands all agents: it stays where it is.
    is_agent "$CERTS/$machine.pem" || fail "$CERTS/$machine.pem: expected the certificate of an agent"
done
for file in "$CERTS/ca.pem" "$CERTS/revoked.pem"; do
    [ -r "$file" ] || fail "$file cannot be read: expected what \`edgecut cluster init\` writes"
done
shared
for machine in "$@"; do agent "$machine"; done
