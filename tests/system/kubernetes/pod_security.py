"""The Pod Security Standard "restricted" (Kubernetes 1.36), as far as pods of carve's use its fields."""
FREE_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def restricted_faults(spec):
    """What "restricted" refuses of a pod's spec."""
    pod = spec.get("securityContext", {})
    faults = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    faults += [f"volume {v['name']}" for v in spec.get("volumes", []) if not FREE_VOLUMES & set(v)]
    for container in spec.get("initContainers", []) + spec["containers"]:
        own = container.get("securityContext", {})
        both, capabilities, name = {**pod, **own}, own.get("capabilities", {}), container["name"]
        faults += [f"{name}: {field}" for field, wrong in (
            ("privileged", own.get("privileged")),
            ("allowPrivilegeEscalation", own.get("allowPrivilegeEscalation") is not False),
            ("runAsNonRoot", both.get("runAsNonRoot") is not True),
            ("runAsUser", both.get("runAsUser") == 0),
            ("seccompProfile", both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost")),
            ("drop", capabilities.get("drop") != ["ALL"]),
            ("add", set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}),
            ("procMount", own.get("procMount", "Default") != "Default"),
            ("seLinuxOptions", set(both.get("seLinuxOptions", {})) - {"level"}),
            ("hostPorts", any(p.get("hostPort") for p in container.get("ports", []))),
        ) if wrong]
    return faults
