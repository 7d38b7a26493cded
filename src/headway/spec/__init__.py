"""What is asked: jobs, clusters, workloads. Validation, YAML, overrides, JSON schema."""

from headway.spec.cluster import ROLES, Cluster, Role, RoleSettings, Task, Threads
from headway.spec.job import Job, job_schema

__all__ = ["ROLES", "Cluster", "Job", "Role", "RoleSettings", "Task", "Threads", "job_schema"]
