"""The permissions of a controller and of the kill switch in a Google Cloud project."""

from __future__ import annotations

APIS = (
    "compute.googleapis.com",
    "tpu.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudbilling.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
)
"""APIs that controllers and `seatrial doctor gcp` call."""
SWITCH_APIS = ("run.googleapis.com", "cloudscheduler.googleapis.com")
"""APIs of the kill switch."""
TPU_ROLE = "roles/tpu.admin"
"""Role of controllers and the kill switch.

Google documents no permissions of queued resources that a custom role could name.
"""

KILL_SWITCH = (
    "compute.instances.list",
    "compute.instances.delete",
    "compute.disks.list",
    "compute.disks.delete",
    "compute.addresses.list",
    "compute.addresses.delete",
)
CONTROLLER = (
    *KILL_SWITCH,
    "compute.instances.create",
    "compute.instances.get",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.getGuestAttributes",
    "compute.instances.getSerialPortOutput",
    "compute.disks.create",
    "compute.disks.get",
    "compute.disks.setLabels",
    "compute.addresses.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.networks.updatePolicy",
    "compute.firewalls.create",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.firewalls.delete",
    "compute.machineTypes.list",
    "compute.acceleratorTypes.list",
    "compute.regions.get",
    "compute.zones.list",
    "compute.projects.get",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.globalOperations.get",
    "cloudquotas.quotas.get",
    "serviceusage.services.get",
    "serviceusage.services.use",
    "resourcemanager.projects.get",
)
TPU = ("tpu.nodes.create", "tpu.nodes.get", "tpu.nodes.list", "tpu.nodes.delete")
"""Permissions of `TPU_ROLE` that are checked."""
ACT_AS = "iam.serviceAccounts.actAs"
"""On the project's default service account, which every TPU VM is made with."""
