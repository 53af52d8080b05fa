#!/bin/bash
# Kubernetes' own schemas take the manifests, and the daemon takes the flags of its container, at the port that the
# probes ask.
source "$(dirname "${BASH_SOURCE[0]}")/recipes.sh"

install_linters
readonly manifest=$repo/deploy/kubernetes/paramd.yaml
"$linters/bin/kubernetes-validate" --strict "$manifest"
"$linters/bin/python" - "$manifest" >"$scratch/flags" <<'PYTHON'
import sys
import yaml

documents = {document["kind"]: document for document in yaml.safe_load_all(open(sys.argv[1]))}
pod = documents["StatefulSet"]["spec"]["template"]
container, = pod["spec"]["containers"]
listen, = (flag for flag in container["args"] if flag.startswith("--listen="))
port = int(listen.rpartition(":")[2])
assert container["ports"] == [{"name": "grpc", "containerPort": port}], container["ports"]
for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
    assert container[probe]["exec"]["command"][0] == "paramctl", probe
assert {"name": "PARAMD_SERVER", "value": f"localhost:{port}"} in container["env"], container["env"]
mounts = [mount["mountPath"] + "/" for mount in container["volumeMounts"]]
for flag in container["args"]:
    path = flag.partition("=")[2]
    assert not path.startswith("/") or any(path.startswith(mount) for mount in mounts), flag
volumes = [volume["name"] for volume in pod["spec"]["volumes"] + documents["StatefulSet"]["spec"]["volumeClaimTemplates"]
           for volume in [volume.get("metadata", volume)]]
assert sorted(volumes) == sorted(mount["name"] for mount in container["volumeMounts"]), volumes
grace, = (int(flag.partition("=")[2].removesuffix("s")) for flag in container["args"] if flag.startswith("--grace="))
assert grace < pod["spec"]["terminationGracePeriodSeconds"], grace
labels = documents["StatefulSet"]["spec"]["selector"]["matchLabels"]
assert labels.items() <= pod["metadata"]["labels"].items()
assert documents["Service"]["spec"]["selector"] == labels
assert documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
assert documents["StatefulSet"]["spec"]["serviceName"] == documents["Service"]["metadata"]["name"]
print(*container["args"], sep="\n")
PYTHON
mapfile -t flags <"$scratch/flags"
((${#flags[@]} > 0))
check_flags paramd.yaml "${flags[@]}"
